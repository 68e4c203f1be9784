// SPDX-License-Identifier: GPL-2.0

//! Orders on standard input, one a line: `CARD FAULT`, such as `0 link down`, or `CARD send STREAM`, `CARD replay FILE
//! TIMES` and `CARD quiet` for frames that no other card has sent; `CARD queues` to be told how its queues stand.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{bail, Context as _, Result};
use mflow_frames::Stream;

use super::engine::Engine;
use super::source::{Content, Replay, Source};
use super::{lock, LastBreath, Shared, Slot};
use crate::host::faults::Fault;

/// An order to a card.
enum Order {
    Fault(Fault),
    Receive(Option<Content>),
    /// Report the state of its queues.
    Report,
}

/// Carries out orders; the end of the input ends the process, so that no server outlives the program that started it.
pub(crate) fn listen(slots: Vec<Shared>, source: Arc<Source>, engine: Arc<Engine>) {
    thread::spawn(move || {
        let _ends_process = LastBreath;
        for line in io::stdin().lines().map_while(Result::ok) {
            match obey(&line, &slots, &source) {
                Ok(said) => {
                    engine.wake();
                    println!("done {line}{said}");
                }
                Err(error) => println!("error {error:#}"),
            }
        }
        std::process::exit(0);
    });
}

fn obey(line: &str, slots: &[Shared], source: &Source) -> Result<String> {
    let (card, order) = parse(line)?;
    let slot = slots.get(card);
    let slot = slot.with_context(|| format!("there are {} cards, from 0 on", slots.len()))?;
    match order {
        Order::Receive(content) => source.set(content.map(|content| (card, content))),
        Order::Report => {
            let mut slot = lock(slot);
            let Slot { device, guest } = &mut *slot;
            return Ok(format!(": {}", device.queues(guest)));
        }
        Order::Fault(fault) => {
            let mut slot = lock(slot);
            let Slot { device, guest } = &mut *slot;
            device.inject(guest, fault);
        }
    }
    Ok(String::new())
}

fn parse(line: &str) -> Result<(usize, Order)> {
    let (card, order) = line
        .trim()
        .split_once(' ')
        .context("an order is: CARD ORDER")?;
    let card = card.parse().with_context(|| format!("no card: {card}"))?;
    let order = match order.split_once(' ').unwrap_or((order, "")) {
        ("send", stream) => {
            let stream =
                serde_json::from_str(stream).with_context(|| format!("no stream: {stream}"))?;
            Order::Receive(Some(Content::Stream(Box::new(Stream::new(stream)?))))
        }
        ("replay", what) => {
            let (file, times) = what.rsplit_once(' ').context("it is: replay FILE TIMES")?;
            let times = times
                .parse()
                .with_context(|| format!("no number: {times}"))?;
            Order::Receive(Some(Content::Replay(Replay::read(Path::new(file), times)?)))
        }
        ("quiet", "") => Order::Receive(None),
        ("queues", "") => Order::Report,
        _ => Order::Fault(parse_fault(order)?),
    };
    Ok((card, order))
}

fn parse_fault(order: &str) -> Result<Fault> {
    let words: Vec<&str> = order.split_whitespace().collect();
    let number = |word: &str| word.parse().with_context(|| format!("no number: {word}"));
    Ok(match words[..] {
        ["link", "up"] => Fault::Link(true),
        ["link", "down"] => Fault::Link(false),
        ["no-buffers", count] => Fault::NoBuffers(number(count)?),
        ["receive-error"] => Fault::ReceiveError,
        ["send-error"] => Fault::SendError,
        ["duplicate", count] => Fault::Duplicate(number(count)?),
        ["overtake", count] => Fault::Overtake(number(count)?),
        ["duplicate-events", count] => Fault::DuplicateEvents(number(count)?),
        ["lose-events", count] => Fault::LoseEvents(number(count)?),
        ["lose-interrupts", count] => Fault::LoseInterrupts(number(count)?),
        ["stall"] => Fault::Stalled(true),
        ["go-on"] => Fault::Stalled(false),
        ["health", syndrome] => Fault::Health(u8::try_from(number(syndrome)?)?),
        ["fatal"] => Fault::Fatal,
        _ => bail!(
            "no fault: {}; there are: link up, link down, no-buffers COUNT, receive-error, send-error, duplicate COUNT, \
             overtake COUNT, duplicate-events COUNT, lose-events COUNT, lose-interrupts COUNT, stall, go-on, \
             health SYNDROME, fatal; and: send STREAM, replay FILE TIMES, quiet, queues",
            words.join(" ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(line: &str) -> Option<(usize, Fault)> {
        match parse(line) {
            Ok((card, Order::Fault(fault))) => Some((card, fault)),
            _ => None,
        }
    }

    #[test]
    fn orders_are_understood_or_refused() {
        assert_eq!(fault("1 link down"), Some((1, Fault::Link(false))));
        assert_eq!(fault("0 no-buffers 7"), Some((0, Fault::NoBuffers(7))));
        assert_eq!(fault("0 fatal"), Some((0, Fault::Fatal)));
        let stream = r#"2 send {"nic_mac":"02:00:00:00:00:01","overlay":true,"flows":2,"bytes":16,"credit":9}"#;
        assert!(matches!(
            parse(stream),
            Ok((2, Order::Receive(Some(Content::Stream(_)))))
        ));
        assert!(matches!(parse("2 quiet"), Ok((2, Order::Receive(None)))));
        for bad in [
            "",
            "x link up",
            "0 link",
            "0 health 256",
            "0 no-buffers many",
            "0 send {}",
            "0 replay /nowhere 1",
            "0 quiet please",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
