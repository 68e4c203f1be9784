// SPDX-License-Identifier: GPL-2.0

//! The flows in slots, which give events of batches their flows, and the choice of what is told.

use std::collections::BTreeMap;

use super::event::{Event, Kind};
use crate::module::flow_name::FlowName;
use crate::module::text::Flow;

/// The flows that are known, by their slots: no more than there are slots.
#[derive(Clone, Debug, Default)]
pub struct Known(BTreeMap<u8, FlowName>);

impl Known {
    /// Returns those of a list that have slots.
    pub fn of(flows: &[Flow]) -> Self {
        let named = flows
            .iter()
            .filter_map(|flow| Some((flow.slot?, flow.into())));
        Self(named.collect())
    }

    /// Learns from an event that has a flow, and gives a flow to one that has none. A flow that has stopped keeps its slot: its last
    /// batches are under way.
    pub fn name(&mut self, event: &mut Event) {
        let Some(slot) = event.slot else {
            return;
        };
        match &event.flow {
            Some(flow) => {
                self.0.insert(slot, flow.clone());
            }
            None => event.flow = self.0.get(&slot).cloned(),
        }
    }
}

/// The events that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Their kinds.
    pub kinds: Vec<Kind>,
    /// A device, or the address of an end, that their flow has to have.
    pub flow: Option<String>,
}

impl Choice {
    /// Returns the kinds that have to be listened to. Flows are given their slots by two of them.
    pub fn heard(&self) -> Vec<Kind> {
        let mut kinds = self.kinds.clone();
        kinds.extend([Kind::FlowStart, Kind::FlowStop]);
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// Returns whether an event is to be told. What was lost may have been of any flow.
    pub fn has(&self, event: &Event) -> bool {
        let Some(kind) = event.kind() else {
            return true;
        };
        let is_flow = |filter: &String| event.flow.as_ref().is_some_and(|flow| flow.is(filter));
        self.kinds.contains(&kind) && self.flow.as_ref().is_none_or(is_flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::text::FlowList;
    use crate::trace::event::{Line, What};

    const FLOWS: &str = "device eth0 queue 0 proto udp from 192.0.2.1:50001 to 192.0.2.9:4789 cpu 1 pps 20000 state split slot 5 lanes 2-3 batch_pkts 256 gain 2.00 parked_pkts 0 late_pkts 0 given_up_batches 0\n\
                         device eth0 queue 0 proto udp from 192.0.2.2:50001 to 192.0.2.9:4789 cpu 1 pps 20000 state whole reason no_data # no data\n";

    fn event(text: &str) -> Event {
        match Line::parse(&format!(" a-1 [000] ... 1.000000: {text}")) {
            Some(Line::Event(event)) => event,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn a_batch_belongs_to_the_flow_that_had_its_slot_then() {
        let list = FlowList::parse(FLOWS).expect("flows");
        let mut known = Known::of(&list.flows);
        let choice = Choice {
            kinds: vec![Kind::Late],
            flow: Some("192.0.2.1".to_owned()),
        };
        let lines = [
            ("late: slot 5 batch 1 pkts 1", true),
            ("late: slot 6 batch 1 pkts 1", false),
            ("flow_stop: device eth0 queue 0 proto udp from 192.0.2.1:50001 to 192.0.2.9:4789 cpu 1 pps 9 slot 5 reason slow", false),
            ("late: slot 5 batch 2 pkts 1", true),
            ("flow_start: device eth0 queue 0 proto udp from 192.0.2.3:50001 to 192.0.2.9:4789 cpu 1 pps 9 slot 5 reason -", false),
            ("late: slot 5 batch 3 pkts 1", false),
            ("flow_start: device eth0 queue 0 proto udp from 192.0.2.1:50001 to 192.0.2.9:4789 cpu 1 pps 9 slot 6 reason -", false),
            ("late: slot 6 batch 1 pkts 1", true),
        ];
        for (text, is_told) in lines {
            let mut event = event(text);
            known.name(&mut event);
            assert_eq!(choice.has(&event), is_told, "{text}");
        }
    }

    #[test]
    fn flows_are_listened_to_in_any_case() {
        let choice = Choice {
            kinds: vec![Kind::Merge, Kind::FlowStop],
            flow: Some("eth0".to_owned()),
        };
        let heard = [Kind::FlowStart, Kind::FlowStop, Kind::Merge];
        assert_eq!(choice.heard(), heard);
        let lost = Event::of_none(0, What::Lost { events: 1 });
        assert!(choice.has(&lost));
    }
}
