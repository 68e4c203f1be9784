// SPDX-License-Identifier: GPL-2.0

//! Slots are handed out once, and with all that their last owner wrote.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use mflow_algo::algo::merge::slot_pool::{SlotPool, NR_SLOTS};

use crate::support::packet::TestPacket;

/// One more thread than slots: no slot has two owners, and a slot that was given back can be had again.
#[test]
fn slot_has_one_owner() {
    loom::model(|| {
        let pool = Arc::new(SlotPool::<TestPacket>::new());
        // What an owner keeps about its slot, without atomics: the pool has to order the owners.
        let owned: Arc<[UnsafeCell<u32>; NR_SLOTS]> =
            Arc::new(std::array::from_fn(|_| UnsafeCell::new(0)));
        let claim = |pool: &SlotPool<TestPacket>, owned: &[UnsafeCell<u32>; NR_SLOTS]| {
            let slot = pool.claim();
            if let Some(slot) = slot {
                assert!(pool.taken().any(|taken| taken == slot));
                // SAFETY: The slot is this thread's, which loom verifies.
                owned[slot].with_mut(|uses| unsafe { *uses += 1 });
            }
            slot
        };

        let keeping = {
            let (pool, owned) = (pool.clone(), owned.clone());
            thread::spawn(move || claim(&pool, &owned))
        };
        let returning = {
            let (pool, owned) = (pool.clone(), owned.clone());
            thread::spawn(move || {
                let slot = claim(&pool, &owned);
                if let Some(slot) = slot {
                    pool.release(slot);
                }
                slot
            })
        };
        let own = claim(&pool, &owned);
        let kept = keeping.join().unwrap();
        let returned = returning.join().unwrap();

        assert!(own.is_none() || own != kept);
        let nr_uses: u32 = (0..NR_SLOTS)
            // SAFETY: All threads have ended.
            .map(|slot| owned[slot].with(|uses| unsafe { *uses }))
            .sum();
        let nr_claims = [own, kept, returned].iter().flatten().count();
        assert_eq!(nr_uses as usize, nr_claims);
        assert!(nr_claims >= NR_SLOTS);
        assert_eq!(pool.taken().count(), [own, kept].iter().flatten().count());
    });
}

#[test]
fn probes_have_different_numbers() {
    loom::model(|| {
        let pool = Arc::new(SlotPool::<TestPacket>::new());
        let other = {
            let pool = pool.clone();
            thread::spawn(move || pool.next_probe())
        };
        let own = pool.next_probe();
        assert_ne!(own, other.join().unwrap());
    });
}
