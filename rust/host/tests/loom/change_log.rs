// SPDX-License-Identifier: GPL-2.0

//! The log of flows' changes: what is read is what was written, each once and in order, and what was lost is told.

use loom::sync::Arc;
use loom::thread;
use mflow_algo::algo::report::change_log::ChangeLog;

/// Three records, for which there is not always room, while somebody reads.
#[test]
fn records_are_read_whole_and_in_order() {
    loom::model(|| {
        let log = Arc::new(ChangeLog::<2>::new());
        let writer = {
            let log = log.clone();
            thread::spawn(move || {
                let kept = (1..=3).filter(|number| log.push(&[*number, number + 10]));
                kept.count()
            })
        };
        let mut read = Vec::new();
        read.extend(log.take());
        let kept = writer.join().unwrap();
        while let Some(record) = log.take() {
            read.push(record);
        }
        assert_eq!(read.len(), kept);
        let mut before = 0;
        for record in read {
            let [number, other] = record.words;
            assert_eq!(other, number + 10);
            assert_eq!(number, before + u64::from(record.lost) + 1);
            before = number;
        }
    });
}
