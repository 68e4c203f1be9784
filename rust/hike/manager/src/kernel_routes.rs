// SPDX-License-Identifier: GPL-2.0

//! Routes of the kernel's own, over netlink: what there is of ours, and what has to change.
//!
//! Ours have a protocol number (`rtm_protocol`, linux/rtnetlink.h), and no other is ever replaced or removed. Each change is one
//! message, so a packet takes the old route or the new one.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;

use anyhow::{anyhow, bail, ensure, Context as _, Result};
use futures_util::TryStreamExt as _;
use mflow_hike::config::path::Mode;
use mflow_hike::{Destination, Hook, HOPS_TABLE};
use rtnetlink::packet_core::{DefaultNla, Nla as _, NLA_TYPE_MASK};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteLwEnCapType, RouteLwTunnelEncap, RouteMessage,
    RouteProtocol, RouteScope, RouteSeg6IpTunnel, RouteType, Seg6Header, Seg6Mode,
};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::sys::AsyncSocket as _;
use rtnetlink::Handle;

use crate::configuration::kernel::{KernelAction, KernelRoute, RouteKey};
use crate::configuration::objects::Key;
use crate::devices::Devices;
use crate::proto::Numbered as _;

/// Returns the protocol by which our routes are known: numbers that neither rtnetlink.h nor iproute2's list of protocols gives to
/// anyone.
fn protocol(hook: Hook) -> u8 {
    match hook {
        Hook::Xdp => 72,
        Hook::Tcx => 73,
    }
}

/// `SEG6_IPTUN_MODE_ENCAP_RED` of linux/seg6_iptunnel.h.
const MODE_ENCAP_RED: u32 = 3;

/// Attributes of linux/seg6_local.h.
mod seg6_local {
    pub(super) const ACTION: u16 = 1;
    pub(super) const TABLE: u16 = 3;
    pub(super) const NH4: u16 = 4;
    pub(super) const NH6: u16 = 5;
    pub(super) const VRFTABLE: u16 = 9;
    pub(super) const FLAVORS: u16 = 11;
    /// Of those in `FLAVORS`: bits, of which this one is PSP.
    pub(super) const FLV_OPERATION: u16 = 1;
    pub(super) const FLV_PSP: u32 = 1 << 1;
}

/// Our routes, as the kernel has them; `None`: nothing that could be configured here.
pub(crate) type There = BTreeMap<RouteKey, Option<KernelRoute>>;

/// Returns our routes.
pub(crate) fn there(hook: Hook, devices: &Devices) -> Result<There> {
    run(|handle| async move { list(&handle, hook, devices).await })
}

/// Makes these routes, each wanted by an object, routes of the kernel; others of ours stay for now.
pub(crate) fn put(hook: Hook, routes: &[(Key, KernelRoute)], devices: &Devices) -> Result<()> {
    run(|handle| async move {
        let there = list(&handle, hook, devices).await?;
        for (object, route) in routes {
            let old = there.get(&route.key());
            if old.is_some_and(|old| old.as_ref() == Some(route)) {
                continue;
            }
            let added = add(&handle, hook, route, old.is_some(), devices).await;
            added.with_context(|| object.to_string())?;
        }
        Ok(())
    })
}

/// Removes all of our routes but these.
pub(crate) fn remove_others(
    hook: Hook,
    routes: &[(Key, KernelRoute)],
    devices: &Devices,
) -> Result<()> {
    run(|handle| async move {
        let mut there = list(&handle, hook, devices).await?;
        for (_, route) in routes {
            there.remove(&route.key());
        }
        for key in there.into_keys() {
            match handle.route().del(removal(hook, &key)).execute().await {
                // It may have gone with its device.
                Err(rtnetlink::Error::NetlinkError(error)) if is_not_there(error.raw_code()) => {}
                removed => removed.with_context(|| {
                    format!("cannot remove the kernel's route to {}", key.destination)
                })?,
            }
        }
        Ok(())
    })
}

fn is_not_there(code: i32) -> bool {
    const ESRCH: i32 = 3;
    code == -ESRCH
}

/// Runs what asks the kernel, in this thread's network namespace, whether or not the thread runs other tasks.
fn run<T: Send, F: Future<Output = Result<T>>>(work: impl FnOnce(Handle) -> F + Send) -> Result<T> {
    let done = thread::scope(|scope| {
        let thread = scope.spawn(|| -> Result<T> {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let (mut connection, handle, _) =
                    rtnetlink::new_connection().context("cannot open a netlink socket")?;
                // So that the kernel looks at the protocol that a list is asked for.
                let socket = connection.socket_mut().socket_mut();
                socket.set_netlink_get_strict_chk(true)?;
                tokio::spawn(connection);
                work(handle).await
            })
        });
        thread.join()
    });
    done.map_err(|_| anyhow!("a thread that asked the kernel for routes has panicked"))?
}

async fn list(handle: &Handle, hook: Hook, devices: &Devices) -> Result<There> {
    let mut there = There::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut asked = RouteMessage::default();
        asked.header.address_family = family;
        asked.header.protocol = RouteProtocol::Other(protocol(hook));
        let messages = handle.route().get(asked).execute();
        let messages: Vec<RouteMessage> = messages
            .try_collect()
            .await
            .context("cannot list the kernel's routes")?;
        for message in messages {
            // Kernels without that check list all.
            if u8::from(message.header.protocol) == protocol(hook) {
                let (key, route) = read(&message, devices)?;
                there.insert(key, route);
            }
        }
    }
    Ok(there)
}

async fn add(
    handle: &Handle,
    hook: Hook,
    route: &KernelRoute,
    replaces: bool,
    devices: &Devices,
) -> Result<()> {
    const EEXIST: i32 = 17;
    let request = handle.route().add(message(hook, route, devices)?);
    let request = if replaces { request.replace() } else { request };
    let Err(error) = request.execute().await else {
        return Ok(());
    };
    match &error {
        rtnetlink::Error::NetlinkError(said) if said.raw_code() == -EEXIST => bail!(
            "{} has a route that is not ours in table {} with metric {}; remove that, or take another metric",
            route.destination,
            route.table,
            route.key().metric
        ),
        rtnetlink::Error::NetlinkError(said) => {
            let needs = match route.vrf_table {
                Some(_) => "; it needs a VRF's device of this table, and net.vrf.strict_mode",
                None => "",
            };
            bail!("the kernel refuses it: {}{needs}", said.to_io())
        }
        _ => Err(error.into()),
    }
}

/// Returns what tells the kernel of a route to remove.
fn removal(hook: Hook, key: &RouteKey) -> RouteMessage {
    let mut message = begin(hook, key);
    // Whatever its scope is.
    message.header.scope = RouteScope::NoWhere;
    message
}

/// Returns what the kernel is told of a route.
fn message(hook: Hook, route: &KernelRoute, devices: &Devices) -> Result<RouteMessage> {
    let mut message = begin(hook, &route.key());
    let is_v4 = message.header.address_family == AddressFamily::Inet;
    message.header.kind = RouteType::Unicast;
    message.header.scope = match (is_v4, route.via) {
        (true, None) => RouteScope::Link,
        _ => RouteScope::Universe,
    };
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Oif(devices.get(&route.device)?.index));
    if let Some(via) = route.via {
        attributes.push(RouteAttribute::Gateway(route_address(via)));
    }
    if let Some((kind, encap)) = encap(route) {
        attributes.push(RouteAttribute::EncapType(kind));
        attributes.push(RouteAttribute::Encap(encap));
    }
    Ok(message)
}

/// Returns a message about the route of ours with this key.
fn begin(hook: Hook, key: &RouteKey) -> RouteMessage {
    let (address, bits) = match key.destination {
        Destination::Address(address) => (address, if address.is_ipv4() { 32 } else { 128 }),
        Destination::Prefix(address, bits) => (address, bits),
        // A configuration has none.
        Destination::Default => (Ipv6Addr::UNSPECIFIED.into(), 0),
    };
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    header.destination_prefix_length = bits;
    header.protocol = RouteProtocol::Other(protocol(hook));
    // Larger numbers are in the attribute alone.
    header.table = u8::try_from(key.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    let attributes = &mut message.attributes;
    if bits != 0 {
        attributes.push(RouteAttribute::Destination(route_address(address)));
    }
    attributes.push(RouteAttribute::Table(key.table));
    if key.metric != 0 {
        attributes.push(RouteAttribute::Priority(key.metric));
    }
    message
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

/// Returns which light-weight tunnel does what a route does, and how it is told; a route to a next hop of End.X has none.
fn encap(route: &KernelRoute) -> Option<(RouteLwEnCapType, Vec<RouteLwTunnelEncap>)> {
    use seg6_local::{ACTION, FLAVORS, NH4, NH6, TABLE, VRFTABLE};
    let number = |kind, number: u32| DefaultNla::new(kind, number.to_ne_bytes().to_vec());
    let Some(action) = route.action else {
        let mut header = Seg6Header::default();
        header.mode = match route.mode {
            Mode::Encaps => Seg6Mode::Encap,
            Mode::Reduced => Seg6Mode::Other(MODE_ENCAP_RED),
        };
        header.segments = route.sids.clone()?;
        let header = RouteLwTunnelEncap::Seg6(RouteSeg6IpTunnel::Seg6(header));
        return Some((RouteLwEnCapType::Seg6, vec![header]));
    };
    let hop = route.next_hop.map(|hop| match hop {
        IpAddr::V4(hop) => DefaultNla::new(NH4, hop.octets().to_vec()),
        IpAddr::V6(hop) => DefaultNla::new(NH6, hop.octets().to_vec()),
    });
    let table = route.lookup_table.map(|table| number(TABLE, table));
    let vrf_table = route.vrf_table.map(|table| number(VRFTABLE, table));
    let flavours = route.flavours.psp.then(|| DefaultNla::new(FLAVORS, psp()));
    // CAST: its number.
    let action = Some(number(ACTION, action as u32));
    let told = [action, hop, table, vrf_table, flavours].into_iter();
    let told = told.flatten().map(RouteLwTunnelEncap::Other);
    Some((RouteLwEnCapType::Seg6Local, told.collect()))
}

/// Returns the attribute inside of the flavours: its length, its kind, its value.
fn psp() -> Vec<u8> {
    let mut inner = 8u16.to_ne_bytes().to_vec();
    inner.extend(seg6_local::FLV_OPERATION.to_ne_bytes());
    inner.extend(seg6_local::FLV_PSP.to_ne_bytes());
    inner
}

/// Returns which route the kernel tells of, and what it is, if it could be configured here.
fn read(message: &RouteMessage, devices: &Devices) -> Result<(RouteKey, Option<KernelRoute>)> {
    let header = &message.header;
    let v4 = header.address_family == AddressFamily::Inet;
    let mut address = match v4 {
        true => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        false => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let (mut table, mut metric) = (u32::from(header.table), 0);
    let (mut device, mut via, mut kind, mut encap) = (None, None, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(to) => address = ip_address(to).unwrap_or(address),
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::Oif(index) => device = devices.name(*index),
            RouteAttribute::Gateway(to) => via = ip_address(to),
            RouteAttribute::EncapType(is) => kind = Some(*is),
            RouteAttribute::Encap(is) => encap = Some(is),
            _ => {}
        }
    }
    let key = RouteKey {
        destination: Destination::prefix(address, header.destination_prefix_length)?,
        table,
        metric,
    };
    let is_usual = header.kind == RouteType::Unicast && header.tos == 0;
    let device = device.filter(|_| is_usual).map(str::to_owned);
    let route = device.and_then(|device| {
        let route = KernelRoute {
            destination: key.destination,
            device,
            via,
            table,
            metric: key.unusual_metric(),
            ..KernelRoute::default()
        };
        match kind.zip(encap) {
            Some((kind, encap)) => with_encap(route, kind, encap),
            // To a next hop of End.X.
            None => (table == HOPS_TABLE && via.is_some()).then_some(route),
        }
    });
    Ok((key, route))
}

fn ip_address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// Returns the route that does what a light-weight tunnel does, if that can be configured.
fn with_encap(
    mut route: KernelRoute,
    kind: RouteLwEnCapType,
    encap: &[RouteLwTunnelEncap],
) -> Option<KernelRoute> {
    use seg6_local::{ACTION, FLAVORS, NH4, NH6, TABLE, VRFTABLE};
    match (kind, encap) {
        (RouteLwEnCapType::Seg6, [RouteLwTunnelEncap::Seg6(RouteSeg6IpTunnel::Seg6(header))]) => {
            route.mode = match header.mode {
                Seg6Mode::Encap => Mode::Encaps,
                Seg6Mode::Other(MODE_ENCAP_RED) => Mode::Reduced,
                _ => return None,
            };
            route.sids = Some(header.segments.clone());
            return Some(route);
        }
        (RouteLwEnCapType::Seg6Local, _) => {}
        _ => return None,
    }
    for attribute in encap {
        let mut value = vec![0; attribute.value_len()];
        attribute.emit_value(&mut value);
        let number = || Some(u32::from_ne_bytes(value[..].try_into().ok()?));
        // The kernel says of flavours that they are nested.
        match attribute.kind() & NLA_TYPE_MASK {
            ACTION => {
                let mut known = KernelAction::all();
                // CAST: its number.
                route.action = Some(known.find(|one| Some(*one as u32) == number())?);
            }
            TABLE => route.lookup_table = Some(number()?),
            VRFTABLE => route.vrf_table = Some(number()?),
            NH4 => route.next_hop = Some(<[u8; 4]>::try_from(value).ok()?.into()),
            NH6 => route.next_hop = Some(<[u8; 16]>::try_from(value).ok()?.into()),
            FLAVORS if value == psp() => route.flavours.psp = true,
            // What has more than that does more.
            _ => return None,
        }
    }
    (route.action.is_some() && route.check_action().is_ok()).then_some(route)
}

/// Fails unless the devices of routes are there.
pub(crate) fn check(routes: &[(Key, KernelRoute)], devices: &Devices) -> Result<()> {
    for (object, route) in routes {
        let there = devices.get(&route.device);
        ensure!(there.is_ok(), "{object}: {:#}", there.unwrap_err());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_is_told_is_read_again() {
        let routes = "
            sids = ['::1', '::']
            sids = ['::1', '::'], mode = 'reduced'
            action = 'End'
            action = 'End', flavours = ['psp']
            action = 'End.X', next-hop = '::1'
            action = 'End.T', lookup-table = 7
            action = 'End.DX6', next-hop = '::1'
            action = 'End.DX4', next-hop = '127.0.0.1'
            action = 'End.DT6', lookup-table = 7
            action = 'End.DT6', vrf-table = 7
            action = 'End.DT4', vrf-table = 7
            action = 'End.DT46', vrf-table = 7
        ";
        let read = |line: &str| -> KernelRoute {
            let text = format!("a = {{ destination = '::/0', device = 'e', {line} }}");
            let mut read: BTreeMap<String, _> = toml::from_str(&text).expect(line);
            read.remove("a").expect(line)
        };
        let none = KernelRoute {
            action: None,
            ..read("action = 'End'")
        };
        for line in routes.trim().lines() {
            let route = read(line.trim());
            let (kind, told) = encap(&route).expect("it is no route to a next hop");
            assert_eq!(with_encap(none.clone(), kind, &told), Some(route));
        }
        assert_eq!(encap(&none), None);
        let more = encap(&read("action = 'End.T', lookup-table = 7"));
        let (_, mut more) = more.expect("it is no route to a next hop");
        more.push(RouteLwTunnelEncap::Other(DefaultNla::new(6, vec![0; 4])));
        assert_eq!(with_encap(none, RouteLwEnCapType::Seg6Local, &more), None);
    }
}
