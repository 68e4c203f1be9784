// SPDX-License-Identifier: GPL-2.0

//! A firewall of a host or a container: what is new passes by port, the rest by the state of its connection, and FTP has a helper that
//! says which connections are to come.

use anyhow::{ensure, Context as _, Result};

use super::iptables_counters::Counts;
use crate::hosts::elephant::receiver::Arrived;
use crate::hosts::elephant::Elephant;
use crate::hosts::host::{Change, Host, Rules};
use crate::hosts::new_flows::{Made, Services};
use crate::hosts::services::conntrack_ports::{self, Tracked};
use crate::network::topology::Family;
use crate::network::{conntrack, nft};
use crate::traffic::ftp::Server;

/// Counts what fits to no connection, before the firewall drops it.
const WATCH: &str = "
table inet mflow {
    counter invalid { }
    chain before {
        type filter hook prerouting priority mangle;
        ct state invalid counter name invalid
    }
}
";

/// The clients of FTP, and the number of files that each of them fetches.
const CLIENTS: usize = 3;
const EACH: u64 = 8;
/// The number of sessions, each of which brings a file.
pub(super) const SESSIONS: u64 = CLIENTS as u64 * EACH;

/// A firewall.
pub(super) struct Wall {
    /// The namespace in which it is, unless it is the first one.
    pub(super) namespace: Option<&'static str>,
    pub(super) inner: Family,
    pub(super) rules: Rules,
    /// Ports of the container that it lets in, beside those of FTP and of the elephant.
    pub(super) tcp: u16,
    pub(super) udp: u16,
    /// Returns what its rules for these ports have counted, as far as that is known.
    pub(super) count: fn(Family) -> Result<Counts>,
}

/// The traffic that has come through, and the firewall's knowledge of it.
#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
    files: u64,
    tracked: Tracked,
    announced: u64,
    invalid: u64,
    counts: Counts,
}

impl Wall {
    /// Compares a host with this firewall with what it does with `enabled` 0. `set_up` makes what the host has besides, `make` the
    /// firewall's rules. Returns what the rules have counted.
    pub(super) fn compare(
        &self,
        host: &Host,
        set_up: impl Fn() -> Result<()>,
        make: impl Fn() -> Result<()>,
    ) -> Result<Counts> {
        let change = Change {
            when: self.rules,
            make: &|| make().and_then(|()| nft::add(self.namespace, WATCH)),
            undo: &|| nft::flush(self.namespace),
        };
        let set_up = || {
            set_up()?;
            change.before()?;
            match self.namespace {
                // It is another one in each half.
                Some(_) => Ok(()),
                // Flows of the other half may have had the same ports.
                None => conntrack::forget(),
            }
        };
        let seen = |host: &Host| self.seen(host, &change);
        let compared = host.compare(self.inner, self.rules, set_up, seen)?;
        compared.each(|seen| {
            let counters = || format!("{:?}; counters: {}", seen.counts, seen.arrived.counters());
            seen.made.require_all().with_context(counters)?;
            ensure!(
                seen.files == SESSIONS && seen.announced == SESSIONS && seen.invalid == 0,
                "{} of {SESSIONS} files came, {} connections were announced, and {} packets were invalid; {:?}",
                seen.files,
                seen.announced,
                seen.invalid,
                seen.tracked
            );
            seen.arrived.require_whole()
        })?;
        compared.require_same(|seen| &seen.tracked)?;
        compared.require_same(|seen| &seen.counts)?;
        let (on, off) = (&compared.on, &compared.off);
        on.arrived.require_looks_of(&off.arrived)?;
        on.arrived.require_split()?;
        Ok(compared.on.counts)
    }

    fn seen(&self, host: &Host, change: &Change<'_>) -> Result<Seen> {
        let ports = [self.tcp, self.udp];
        let services = Services::of_container(self.inner, ports, ports)?;
        let server = Server::bind(self.inner)?;
        let tracked = || Tracked::read(self.namespace, &ports);
        let announced = || conntrack_ports::announced(self.namespace);
        let earlier = (tracked()?, announced()?);
        let elephant = Elephant::plain(host, self.inner)?;
        let use_all = || {
            let (files, made) = (server.serve(CLIENTS, EACH)?, services.make()?);
            Ok(Seen {
                arrived: Arrived::default(),
                made,
                files,
                tracked: tracked()?.since(&earlier.0),
                announced: announced()? - earlier.1,
                invalid: nft::counted(self.namespace, "invalid")?.pkts,
                counts: (self.count)(self.inner)?,
            })
        };
        let (arrived, seen) =
            elephant.run(host.datagrams / 4, |live| live.beside(change, use_all))?;
        Ok(Seen { arrived, ..seen })
    }
}
