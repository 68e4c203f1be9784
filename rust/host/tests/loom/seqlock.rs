// SPDX-License-Identifier: GPL-2.0

//! Readers of published words see those of one moment.

use loom::sync::Arc;
use loom::thread;
use mflow_algo::algo::report::seqlock::SeqLock;

/// Words that are written together, twice, while somebody reads them.
#[test]
fn readers_see_no_mixture() {
    loom::model(|| {
        let published = Arc::new(SeqLock::<2>::new());
        let writer = {
            let published = published.clone();
            thread::spawn(move || {
                for number in 1..=2 {
                    published.update(|words| *words = [number, number + 10]);
                }
            })
        };
        match published.read() {
            None | Some([0, 0] | [1, 11] | [2, 12]) => {}
            Some(mixture) => panic!("{mixture:?}"),
        }
        writer.join().unwrap();
        assert_eq!(published.read(), Some([2, 12]));
    });
}
