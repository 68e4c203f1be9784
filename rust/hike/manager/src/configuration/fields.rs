// SPDX-License-Identifier: GPL-2.0

//! The fields that this crate's parts of a configuration have beside those of the library.

use std::net::IpAddr;

use super::route::Mac;

/// The least MTU of IPv4: RFC 791.
const LEAST_MTU: i64 = 68;
const MOST_PERIOD_MS: i64 = 86_400_000;
const MOST_INTERVAL_MS: i64 = 3_600_000;
const MOST_TIMEOUT_MS: i64 = 60_000;

mflow_hike::fields! {
    ip_source: IpAddr = text("source");
    ip_destination: IpAddr = text("destination");
    ip_next_hop: IpAddr = text("next-hop");
    via: IpAddr = text("via");
    reflector: IpAddr = text("reflector");
    port: u16 = number("port", 1, 65_535);
    interval_ms: u32 = number("interval-ms", 10, MOST_INTERVAL_MS);
    timeout_ms: u32 = number("timeout-ms", 10, MOST_TIMEOUT_MS);
    source_port: u16 = number("source-port", 0, 65_535);
    destination_port: u16 = number("destination-port", 0, 65_535);
    mac_source: Mac = text("source");
    mac_next_hop: Mac = text("next-hop");
    route_mtu: u16 = number("mtu", LEAST_MTU, 65_535);
    period_ms: u32 = number("period-ms", 10, MOST_PERIOD_MS);
    dscp_bit: u8 = number("dscp-bit", 0, 5);
    metric: u32 = number("metric", 1, u32::MAX.into());
    lookup_table: u32 = number("lookup-table", 1, u32::MAX.into());
    vrf_table: u32 = number("vrf-table", 1, u32::MAX.into());
}
