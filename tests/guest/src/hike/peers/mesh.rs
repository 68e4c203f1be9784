// SPDX-License-Identifier: GPL-2.0

//! Routers that are all linked with each other, and hosts of tenants behind them: what the kernel's selftests of segment routing use.
//!
//! Router n is `rtN`, host n `hsN`; a device has the name of what is at its other end, and a host's only one is `wire`. The link of routers
//! x and y is `fcf0:0:x:y::/64`, with their numbers. Hosts are `cafe::n` and `10.0.0.n`, as if all were on one link. A router that has a
//! host of a tenant has the tenant's VRF. SIDs of router n are in `fc00:n::/32`: `::e` (`End`), `::ef1` (`End` with PSP), and of
//! tenant t `fc00:n:t::6004`, `::6006` and `::6046` (`End.DT4`, `End.DT6`, `End.DT46`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Result;

use crate::network::{netns, topology};

/// The table of SIDs, and of the ways to them.
const SIDS: u32 = 90;
const NAMES: [&str; 4] = ["rt1", "rt2", "rt3", "rt4"];
const HOSTS: [&str; 4] = ["hs1", "hs2", "hs3", "hs4"];

/// A host, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    pub(crate) id: u16,
    pub(crate) router: u16,
    /// Whose it is; the number of the VRF's table, too. None: it is in the main table.
    pub(crate) tenant: Option<u16>,
}

impl Host {
    pub(crate) fn name(self) -> &'static str {
        HOSTS[usize::from(self.id) - 1]
    }

    pub(crate) fn address(self, v6: bool) -> IpAddr {
        address(self.id, v6)
    }
}

pub(crate) fn router_name(router: u16) -> &'static str {
    NAMES[usize::from(router) - 1]
}

fn address(host: u16, v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0xcafe, 0, 0, 0, 0, 0, 0, host).into()
    } else {
        // CAST: four hosts, and 254.
        Ipv4Addr::new(10, 0, 0, host as u8).into()
    }
}

/// Returns an address of a router, on its link with another one.
pub(crate) fn link_address(router: u16, other: u16) -> Ipv6Addr {
    let (low, high) = (router.min(other), router.max(other));
    Ipv6Addr::new(0xfcf0, 0, low, high, 0, 0, 0, router)
}

/// The function of a SID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    End,
    EndPsp,
    Dt4(u16),
    Dt6(u16),
    Dt46(u16),
}

/// A SID: the router that has it, and its function.
pub(crate) type Sid = (u16, Function);

pub(crate) fn sid((router, function): Sid) -> Ipv6Addr {
    let (tenant, last) = match function {
        Function::End => (0, 0xe),
        Function::EndPsp => (0, 0xef1),
        Function::Dt4(tenant) => (tenant, 0x6004),
        Function::Dt6(tenant) => (tenant, 0x6006),
        Function::Dt46(tenant) => (tenant, 0x6046),
    };
    Ipv6Addr::new(0xfc00, router, tenant, 0, 0, 0, 0, last)
}

/// The way by which packets come to a host.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) from: Host,
    pub(crate) to: Host,
    pub(crate) v6: bool,
    /// As `ip route` has it: `encap`, `encap.red`, or `inline`, whose last segment is the host itself.
    pub(crate) mode: &'static str,
    pub(crate) sids: Vec<Sid>,
}

/// All of it, until the end of the scope.
pub(crate) struct Mesh {
    pub(crate) routers: u16,
    pub(crate) hosts: Vec<Host>,
    pub(crate) policies: Vec<Policy>,
}

impl Mesh {
    pub(crate) fn up(routers: u16, hosts: &[Host], policies: Vec<Policy>) -> Result<Self> {
        let mesh = Self {
            routers,
            hosts: hosts.to_vec(),
            policies,
        };
        for name in mesh.names() {
            netns::add(name)?;
            netns::within(name, || {
                topology::sysctl("net/ipv4/ip_forward", "1")?;
                for scope in ["all", "default"] {
                    let knobs = [
                        ("forwarding", "1"),
                        ("accept_dad", "0"),
                        ("seg6_enabled", "1"),
                    ];
                    for (knob, value) in knobs {
                        topology::sysctl(&format!("net/ipv6/conf/{scope}/{knob}"), value)?;
                    }
                }
                Ok(())
            })?;
            topology::ip_in(name, "link set lo up")?;
        }
        for (one, other) in mesh.links() {
            mesh.link(one, other)?;
        }
        for host in hosts {
            mesh.attach_host(*host)?;
        }
        for router in 1..=routers {
            mesh.sids_of(router)?;
        }
        for policy in &mesh.policies {
            mesh.steer(policy)?;
        }
        Ok(mesh)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        let routers = (1..=self.routers).map(router_name);
        routers.chain(self.hosts.iter().map(|host| host.name()))
    }

    fn links(&self) -> impl Iterator<Item = (u16, u16)> {
        let routers = self.routers;
        (1..=routers).flat_map(move |one| (one + 1..=routers).map(move |other| (one, other)))
    }

    /// Returns the other routers, each at the other end of a device of its name.
    pub(crate) fn others(&self, router: u16) -> impl Iterator<Item = u16> {
        (1..=self.routers).filter(move |other| *other != router)
    }

    /// Returns the hosts of a router.
    pub(crate) fn hosts_of(&self, router: u16) -> impl Iterator<Item = Host> + '_ {
        let hosts = self.hosts.iter().copied();
        hosts.filter(move |host| host.router == router)
    }

    fn link(&self, one: u16, other: u16) -> Result<()> {
        let (name, others) = (router_name(one), router_name(other));
        topology::ip_in(
            name,
            &format!("link add {others} type veth peer name {name} netns {others}"),
        )?;
        for (at, device, router, peer) in [(name, others, one, other), (others, name, other, one)] {
            let address = link_address(router, peer);
            topology::ip_in(
                at,
                &format!("address add {address}/64 dev {device} nodad\nlink set {device} up"),
            )?;
            for_xdp(at, device)?;
        }
        Ok(())
    }

    fn attach_host(&self, host: Host) -> Result<()> {
        let (name, router) = (host.name(), router_name(host.router));
        // CAST: small numbers.
        let mac = format!("02:00:00:00:{:02x}:{:02x}", host.router, host.id);
        topology::ip_in(
            name,
            &format!("link add wire type veth peer name {name} address {mac} netns {router}"),
        )?;
        let (v6, v4) = (host.address(true), host.address(false));
        let mut lines = format!(
            "address add {v6}/64 dev wire nodad\naddress add {v4}/24 dev wire\nlink set wire up\n"
        );
        // All seem to be on its link: the router answers for them (proxy ARP and NDP).
        for other in self.hosts.iter().filter(|other| other.id != host.id) {
            for v6 in [true, false] {
                let address = other.address(v6);
                lines += &format!("neighbour add {address} lladdr {mac} dev wire\n");
            }
        }
        topology::ip_in(name, &lines)?;
        let (v6, v4) = (address(254, true), address(254, false));
        let mut lines = String::new();
        if let Some(tenant) = host.tenant {
            lines += &format!("link add vrf{tenant} type vrf table {tenant}\nlink set vrf{tenant} up\nlink set {name} master vrf{tenant}\n");
            for family in ["-6", "-4"] {
                lines += &format!(
                    "{family} route add unreachable default metric 4278198272 vrf vrf{tenant}\n"
                );
            }
        }
        lines += &format!("address add {v6}/64 dev {name} nodad\naddress add {v4}/24 dev {name}\nlink set {name} up\n");
        for line in lines.lines() {
            // A line may have a family of its own, which a batch has not.
            crate::machine::command::run(&format!("ip -n {router} {line}"))?;
        }
        for (at, device) in [(name, "wire"), (router, name)] {
            for_xdp(at, device)?;
        }
        if host.tenant.is_some() {
            netns::within(router, || topology::sysctl("net/vrf/strict_mode", "1"))?;
        }
        Ok(())
    }

    /// Gives a router its SIDs, and the ways to those of the others.
    fn sids_of(&self, router: u16) -> Result<()> {
        let mut lines = String::new();
        for other in self.others(router) {
            let (via, device) = (link_address(other, router), router_name(other));
            lines += &format!("route add fc00:{other}::/32 table {SIDS} via {via} dev {device}\n");
        }
        let device = self.others(router).next().map_or("", router_name);
        for (function, action) in [
            (Function::End, "End"),
            (Function::EndPsp, "End flavors psp"),
        ] {
            let sid = sid((router, function));
            lines += &format!(
                "route add {sid} table {SIDS} encap seg6local action {action} dev {device}\n"
            );
        }
        for tenant in self.hosts_of(router).filter_map(|host| host.tenant) {
            for (function, action) in [
                (Function::Dt4(tenant), "End.DT4"),
                (Function::Dt6(tenant), "End.DT6"),
                (Function::Dt46(tenant), "End.DT46"),
            ] {
                let sid = sid((router, function));
                lines += &format!("route add {sid} table {SIDS} encap seg6local action {action} vrftable {tenant} dev vrf{tenant}\n");
            }
        }
        topology::ip_in(router_name(router), &lines)?;
        let rule = format!("-6 rule add to fc00::/16 lookup {SIDS} prio 999");
        crate::machine::command::run(&format!("ip -n {} {rule}", router_name(router)))?;
        let tunnels_from = tunnel_source(router);
        topology::ip_in(
            router_name(router),
            &format!("address add {tunnels_from}/128 dev lo nodad\nsr tunsrc set {tunnels_from}"),
        )
    }

    /// Makes the kernel of the first router send packets on the way of a policy.
    fn steer(&self, policy: &Policy) -> Result<()> {
        let router = policy.from.router;
        let to = policy.to.address(policy.v6);
        let sids: Vec<String> = policy
            .sids
            .iter()
            .map(|one| sid(*one).to_string())
            .collect();
        let core = self.others(router).next().map_or("", router_name);
        let device = match policy.from.tenant {
            Some(tenant) => format!("dev vrf{tenant} vrf vrf{tenant}"),
            None => format!("dev {core}"),
        };
        let (mode, sids) = (policy.mode, sids.join(","));
        topology::ip_in(
            router_name(router),
            &format!("route add {to} encap seg6 mode {mode} segs {sids} {device}"),
        )
    }
}

/// Returns what tunnels of a router are from.
pub(crate) fn tunnel_source(router: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfcf0, 0xffff, 0, 0, 0, 0, 0, router)
}

/// Makes a device hand over frames whole, and take frames that XDP redirects to it.
fn for_xdp(node: &str, device: &str) -> Result<()> {
    netns::run(node, &format!("ethtool -K {device} tx off gro on")).map(drop)
}

impl Drop for Mesh {
    fn drop(&mut self) {
        for name in self.names() {
            // The next case finds out if one is left.
            let _gone = netns::delete(name);
        }
    }
}
