// SPDX-License-Identifier: GPL-2.0

//! Orders on standard input, one a line: `CARD FAULT`, such as `0 link down`.

use std::io;
use std::sync::Arc;
use std::thread;

use anyhow::{bail, Context as _, Result};

use super::engine::Engine;
use super::{lock, Shared, Slot};
use crate::faults::Fault;

/// Carries out orders; the end of the input ends the process, so that no server outlives whoever started it.
pub(crate) fn listen(slots: Vec<Shared>, engine: Arc<Engine>) {
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            match parse(&line) {
                Ok((card, fault)) => match slots.get(card) {
                    Some(slot) => {
                        let mut slot = lock(slot);
                        let Slot { device, guest } = &mut *slot;
                        device.inject(guest, fault);
                        drop(slot);
                        engine.wake();
                        println!("done {line}");
                    }
                    None => println!("error there are {} cards, from 0 on", slots.len()),
                },
                Err(error) => println!("error {error:#}"),
            }
        }
        std::process::exit(0);
    });
}

fn parse(line: &str) -> Result<(usize, Fault)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [card, words @ ..] = &words[..] else {
        bail!("an order is: CARD FAULT");
    };
    let card = card.parse().with_context(|| format!("no card: {card}"))?;
    let number = |word: &str| word.parse().with_context(|| format!("no number: {word}"));
    let fault = match words {
        ["link", "up"] => Fault::Link(true),
        ["link", "down"] => Fault::Link(false),
        ["no-buffers", count] => Fault::NoBuffers(number(count)?),
        ["receive-error"] => Fault::ReceiveError,
        ["send-error"] => Fault::SendError,
        ["stall"] => Fault::Stalled(true),
        ["go-on"] => Fault::Stalled(false),
        ["health", syndrome] => Fault::Health(u8::try_from(number(syndrome)?)?),
        _ => bail!(
            "no fault: {}; there are: link up, link down, no-buffers COUNT, receive-error, send-error, stall, go-on, health SYNDROME",
            words.join(" ")
        ),
    };
    Ok((card, fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_understood_or_refused() {
        assert_eq!(parse("1 link down").unwrap(), (1, Fault::Link(false)));
        assert_eq!(parse("0 no-buffers 7").unwrap(), (0, Fault::NoBuffers(7)));
        for bad in [
            "",
            "x link up",
            "0 link",
            "0 health 256",
            "0 no-buffers many",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
