// SPDX-License-Identifier: GPL-2.0

//! From the NIC's core over lanes to the socket, in order.
//!
//! Each round hands one batch to every lane; then the lanes poll in turn, 64 packets at a time, so that at the merge
//! point up to all but one of the batches wait for the first.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use crossbeam::queue::{ArrayQueue, SegQueue};

use crate::mflow::Mflow;
use crate::packet::{BenchPacket, NR_NODES};
use crate::parts::{BTree, Heap, Parts, RedBlackTree};

/// Packets in a batch, as by default.
pub(crate) const BATCH_PKTS: u32 = 256;
/// Packets in a poll, as in the kernel.
pub(crate) const POLL_PKTS: u32 = 64;

/// One way to split a flow and to put it together again.
pub(crate) trait Way {
    fn new(nr_lanes: usize) -> Self;
    /// Takes the next packet on the NIC's core.
    fn receive(&mut self);
    /// Lets a lane work; returns whether there was anything to do.
    fn poll(&mut self, lane: usize) -> bool;
    /// Returns how many packets have been delivered, all of them in order.
    fn nr_delivered(&self) -> u64;
}

fn round(way: &mut impl Way, nr_lanes: usize) {
    for _ in 0..BATCH_PKTS * nr_lanes as u32 {
        way.receive();
    }
    // From the last lane to the first: the batch whose turn it is comes last.
    while (0..nr_lanes)
        .rev()
        .fold(false, |any, lane| way.poll(lane) | any)
    {}
}

fn bench_way<W: Way>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, nr_lanes: usize) {
    let pkts = u64::from(BATCH_PKTS) * nr_lanes as u64;
    assert!(pkts * 2 < NR_NODES);
    group.throughput(Throughput::Elements(pkts));
    let mut way = W::new(nr_lanes);
    let mut nr_rounds = 0;
    let before = way.nr_delivered();
    group.bench_function(BenchmarkId::new(name, nr_lanes), |b| {
        b.iter(|| {
            nr_rounds += 1;
            round(&mut way, nr_lanes);
        })
    });
    // The last batches may still be open, but their packets need not wait for that.
    let delivered = way.nr_delivered() - before;
    assert!(
        delivered + pkts > nr_rounds * pkts,
        "{delivered} of {}",
        nr_rounds * pkts
    );
}

pub(crate) fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("whole_way");
    for nr_lanes in [2, 4] {
        bench_way::<Mflow>(&mut group, "mflow", nr_lanes);
        bench_way::<Parts<ArrayQueue<BenchPacket>, Heap>>(&mut group, "array_queue_heap", nr_lanes);
        bench_way::<Parts<SegQueue<BenchPacket>, Heap>>(&mut group, "seg_queue_heap", nr_lanes);
        bench_way::<Parts<ArrayQueue<BenchPacket>, BTree>>(
            &mut group,
            "array_queue_b_tree",
            nr_lanes,
        );
        bench_way::<Parts<ArrayQueue<BenchPacket>, RedBlackTree>>(
            &mut group,
            "array_queue_red_black_tree",
            nr_lanes,
        );
    }
    group.finish();
}
