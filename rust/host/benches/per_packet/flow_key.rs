// SPDX-License-Identifier: GPL-2.0

//! The flow key, which is made for every packet of a device that is opted in.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use mflow_algo::algo::flow_key::{FlowHasher, ETH_P_IP, ETH_P_IPV6};

pub(crate) fn bench(c: &mut Criterion) {
    let mut udp_over_ipv4 = [0u8; 64];
    udp_over_ipv4[0] = 0x45;
    udp_over_ipv4[9] = 17;
    let mut tcp_over_ipv6 = [0u8; 64];
    tcp_over_ipv6[0] = 0x60;
    tcp_over_ipv6[6] = 6;

    let hasher = FlowHasher::new(black_box(0x1234_5678_9abc_def0));
    let mut group = c.benchmark_group("flow_key");
    group.throughput(Throughput::Elements(1));
    group.bench_function("udp_ipv4", |b| {
        b.iter(|| hasher.key(black_box(ETH_P_IP), black_box(&udp_over_ipv4)))
    });
    group.bench_function("tcp_ipv6", |b| {
        b.iter(|| hasher.key(black_box(ETH_P_IPV6), black_box(&tcp_over_ipv6)))
    });
    group.finish();
}
