// SPDX-License-Identifier: GPL-2.0

//! The part of what is known that is shown: the order of flows, and the first of them on the screen.

use std::cmp::{Ordering, Reverse};

use crate::module::text::Flow;

/// The flows that a key moves by a page.
const PAGE: usize = 10;

/// An order of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The fastest first.
    #[default]
    Pps,
    /// The one that gains most first.
    Gain,
    /// Those that are split first.
    State,
    /// By the CPU that dispatches.
    Cpu,
    /// By the sender.
    From,
}

impl Order {
    /// All orders, each with its key and its name.
    pub const ALL: [(char, Self, &'static str); 5] = [
        ('p', Self::Pps, "packets/s"),
        ('g', Self::Gain, "gain"),
        ('s', Self::State, "state"),
        ('c', Self::Cpu, "CPU"),
        ('f', Self::From, "sender"),
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|one| one.1 == self).map_or("", |one| one.2)
    }

    fn compare(self, one: &Flow, other: &Flow) -> Ordering {
        let gain = |flow: &Flow| flow.gain.unwrap_or(f64::NEG_INFINITY);
        let state = |flow: &Flow| (!flow.is_split(), flow.state.clone());
        match self {
            Self::Pps => Reverse(one.pps).cmp(&Reverse(other.pps)),
            Self::Gain => gain(other).total_cmp(&gain(one)),
            Self::State => state(one).cmp(&state(other)),
            Self::Cpu => one.cpu.cmp(&other.cpu),
            Self::From => one.from.cmp(&other.from),
        }
    }
}

/// A wish of the one who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Sort flows so.
    Sort(Order),
    /// Turn the order round.
    Turn,
    /// Show earlier flows.
    Up,
    /// Show later flows.
    Down,
    /// Show flows a page earlier.
    PageUp,
    /// Show flows a page later.
    PageDown,
    /// Show the first flows.
    First,
}

/// The part that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The order of flows.
    pub order: Order,
    /// True if the order is turned round.
    pub turned: bool,
    /// The place of the first flow that is shown.
    pub first: usize,
}

impl View {
    /// Follows a wish; `flows` is the number of flows that there are.
    pub fn follow(&mut self, wish: Wish, flows: usize) {
        match wish {
            Wish::Sort(order) => {
                *self = Self {
                    order,
                    ..Self::default()
                }
            }
            Wish::Turn => self.turned = !self.turned,
            Wish::Up => self.first = self.first.saturating_sub(1),
            Wish::Down => self.first += 1,
            Wish::PageUp => self.first = self.first.saturating_sub(PAGE),
            Wish::PageDown => self.first += PAGE,
            Wish::First => self.first = 0,
        }
        self.first = self.first.min(flows.saturating_sub(1));
    }

    /// Returns the flows in this order. Those that are equal in it are sorted by their names, so that none changes its place without
    /// a reason.
    pub fn sorted<'a>(&self, flows: &'a [Flow]) -> Vec<&'a Flow> {
        let mut sorted: Vec<&Flow> = flows.iter().collect();
        let name = |flow: &Flow| (flow.from, flow.to, flow.device.clone(), flow.queue);
        sorted.sort_by(|one, other| {
            let order = self.order.compare(one, other);
            let order = if self.turned { order.reverse() } else { order };
            order.then_with(|| name(one).cmp(&name(other)))
        });
        sorted
    }

    /// Returns the words for the order.
    pub fn order_words(&self) -> String {
        let turned = if self.turned { ", reversed" } else { "" };
        format!("by {}{turned}", self.order.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::text::FlowList;

    fn flows() -> Vec<Flow> {
        let text = "device eth0 queue 0 proto udp from 192.0.2.1:3 to 192.0.2.9:1 cpu 4 pps 10 state whole reason asked # it waits\n\
                    device eth0 queue 0 proto udp from 192.0.2.1:2 to 192.0.2.9:1 cpu 5 pps 30 state split slot 0 lanes 2 batch_pkts 1 gain 1.00\n\
                    device eth0 queue 0 proto udp from 192.0.2.1:1 to 192.0.2.9:1 cpu 6 pps - state split slot 0 lanes 2 batch_pkts 1 gain 2.00\n";
        FlowList::parse(text).expect("flows").flows
    }

    fn cpus(view: View) -> Vec<u32> {
        let flows = flows();
        view.sorted(&flows).iter().map(|flow| flow.cpu).collect()
    }

    #[test]
    fn each_order_has_its_first() {
        let mut view = View::default();
        assert_eq!(cpus(view), [5, 4, 6]);
        for (order, expected) in [
            (Order::Gain, [6, 5, 4]),
            (Order::State, [6, 5, 4]),
            (Order::Cpu, [4, 5, 6]),
            (Order::From, [6, 5, 4]),
        ] {
            view.follow(Wish::Sort(order), 3);
            assert_eq!(cpus(view), expected, "{order:?}");
        }
        view.follow(Wish::Sort(Order::Cpu), 3);
        view.follow(Wish::Turn, 3);
        assert_eq!(cpus(view), [6, 5, 4]);
        assert_eq!(view.order_words(), "by CPU, reversed");
    }

    #[test]
    fn the_first_flow_is_one_that_there_is() {
        let mut view = View::default();
        view.follow(Wish::PageDown, 3);
        assert_eq!(view.first, 2);
        view.follow(Wish::Up, 3);
        assert_eq!(view.first, 1);
        view.follow(Wish::Down, 0);
        assert_eq!(view.first, 0);
        view.follow(Wish::PageUp, 3);
        assert_eq!(view.first, 0);
    }
}
