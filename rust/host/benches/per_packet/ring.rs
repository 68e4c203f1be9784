// SPDX-License-Identifier: GPL-2.0

//! The ring to a lane alone, against crossbeam's queues: 256 packets in, 256 out.

use std::ptr::NonNull;

use criterion::{Criterion, Throughput};
use crossbeam::queue::{ArrayQueue, SegQueue};
use mflow_algo::algo::queue::ring::{Item, Ring, RING_ITEMS};

use crate::packet::{Packets, Receiver};

const NR_PKTS: u32 = 256;

pub(crate) fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring");
    group.throughput(Throughput::Elements(u64::from(NR_PKTS)));

    let ring = NonNull::from(Box::leak(Box::new(Ring::new())));
    // SAFETY: The ring is never freed, and this is the only call for it.
    let (mut producer, mut consumer) = unsafe { Ring::ends(ring) };
    let (mut packets, mut receiver) = (Packets::new(), Receiver::default());
    group.bench_function("mflow", |b| {
        b.iter(|| {
            assert!(producer.reserve(NR_PKTS));
            for _ in 0..NR_PKTS {
                assert!(producer.push(packets.next()).is_ok());
            }
            while let Some(Item::Packet(packet)) = consumer.pop(|_, ()| ()) {
                receiver.deliver(packet);
            }
        })
    });

    let queue = ArrayQueue::new(RING_ITEMS);
    let (mut packets, mut receiver) = (Packets::new(), Receiver::default());
    group.bench_function("crossbeam_array_queue", |b| {
        b.iter(|| {
            for _ in 0..NR_PKTS {
                assert!(queue.push(packets.next()).is_ok());
            }
            while let Some(packet) = queue.pop() {
                receiver.deliver(packet);
            }
        })
    });

    let queue = SegQueue::new();
    let (mut packets, mut receiver) = (Packets::new(), Receiver::default());
    group.bench_function("crossbeam_seg_queue", |b| {
        b.iter(|| {
            for _ in 0..NR_PKTS {
                queue.push(packets.next());
            }
            while let Some(packet) = queue.pop() {
                receiver.deliver(packet);
            }
        })
    });
    group.finish();
}
