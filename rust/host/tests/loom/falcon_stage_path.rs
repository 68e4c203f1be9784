// SPDX-License-Identifier: GPL-2.0

//! A pipelined flow moves while its last packet is on its way through two stages, on cores of their own.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::Arc;
use loom::thread;
use mflow_algo::falcon::stage_path::StagePath;

/// The flow may move only when the packet before has reached the end, and then whoever feeds it sees that.
#[test]
fn a_packet_between_two_stages_does_not_slip_through() {
    loom::model(|| {
        let path = Arc::new(StagePath::new());
        let arrived = Arc::new(AtomicBool::new(false));
        assert!(path.try_enter(0, 0));
        let first = {
            let (path, arrived) = (Arc::clone(&path), Arc::clone(&arrived));
            thread::spawn(move || {
                assert!(path.try_enter(1, 1));
                let second = {
                    let (path, arrived) = (Arc::clone(&path), Arc::clone(&arrived));
                    thread::spawn(move || {
                        arrived.store(true, Ordering::Relaxed);
                        path.leave(1);
                    })
                };
                path.leave(0);
                second.join().unwrap();
            })
        };
        if path.try_enter(0, 2) {
            assert!(arrived.load(Ordering::Relaxed));
        }
        first.join().unwrap();
        assert!(path.may_move(1));
    });
}
