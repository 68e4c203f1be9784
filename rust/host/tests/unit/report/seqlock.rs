// SPDX-License-Identifier: GPL-2.0

//! SeqLock words, with a reader on a thread of its own.

use std::thread;

use mflow_algo::algo::report::seqlock::SeqLock;

const WRITES: u64 = if cfg!(miri) { 50 } else { 50_000 };

#[test]
fn a_change_keeps_the_other_words() {
    let published = SeqLock::<3>::new();
    assert_eq!(published.read(), Some([0; 3]));
    published.update(|words| words[1] = 5);
    published.update(|words| words[2] = u64::MAX);
    assert_eq!(published.read(), Some([0, 5, u64::MAX]));
}

#[test]
fn a_reader_sees_words_of_one_moment() {
    let published = SeqLock::<4>::new();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 1..=WRITES {
                published.update(|words| *words = [number; 4]);
            }
        });
        let mut last = 0;
        while !writer.is_finished() {
            if let Some(words) = published.read() {
                assert_eq!(words, [words[0]; 4]);
                assert!(words[0] >= last, "an older state comes back");
                last = words[0];
            }
        }
    });
    assert_eq!(published.read(), Some([WRITES; 4]));
}
