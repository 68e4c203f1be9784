// SPDX-License-Identifier: GPL-2.0

//! Prints the values that knobs can have, those that go together, and the transitions of flows, for the documents that
//! `cargo xtask docs` writes. Cells are separated by tabs, and the first says of which table a line is.

use mflow_algo::algo::flow::transitions::{Event, Transition, TRANSITIONS};
use mflow_algo::algo::knobs::combinations::COMBINATIONS;
use mflow_algo::algo::knobs::{Knobs, Limits, KNOBS};

fn main() {
    for spec in &KNOBS {
        let default = Knobs::DEFAULT.get(spec.knob);
        println!("knob\t{}\t{}\t{default}", spec.name(), spec.limits);
    }
    for with in &COMBINATIONS {
        let scaling = with.scaling.iter().map(|value| value.name());
        let build = with.build.iter().map(|value| value.name());
        println!(
            "combination\t{}\t{}\t{}\t{}",
            with.mode.name(),
            with.layout.name(),
            one_of(scaling),
            one_of(build)
        );
    }
    for Transition { from, event, next } in TRANSITIONS {
        let event = match event {
            Event::Cause(reason) => reason.name().to_owned(),
            other => format!("{other:?}"),
        };
        println!("transition\t{from:?}\t{event}\t{next:?}");
    }
}

/// Returns words as the kernel's log has them.
fn one_of(words: impl Iterator<Item = &'static str>) -> Limits {
    Limits::Words(words.collect::<Vec<_>>().leak())
}
