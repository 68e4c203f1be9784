// SPDX-License-Identifier: GPL-2.0

//! The host under test: built again for each half of a case, once with `enabled` 0 and once with 1.

use std::fmt::Debug;

use anyhow::{ensure, Context as _, Result};

use crate::mflow::{self, Knobs};
use crate::network::netlink::Netlink;
use crate::network::topology::{self, Family, CLIENT};
use crate::network::{netns, nft};
use crate::traffic::rig::Rig;
use crate::traffic::scale::Scale;

/// The default receive buffer of the distribution, in bytes, which all sockets of these cases have: the rig's own cases have
/// forty times as much.
const RMEM_DEFAULT: &str = "212992";
/// Datagrams of the calibration: little is offered afterwards.
const CALIBRATION: u64 = 2_000;
/// The share of the vanilla stack's rate that an elephant may have, and the highest rate of an elephant. More than some hundred
/// datagrams that wait for their reader do not fit into a default socket buffer, and an emulated CPU is away for many
/// milliseconds.
const SHARE: f64 = 0.4;
const MOST_PPS: f64 = 4_000.0;
/// Packets of a micro-flow: fewer than fit into a default socket buffer.
const BATCH_PKTS: u32 = 64;
/// Datagrams of an elephant, and with `--full`.
const DATAGRAMS: u64 = 3_000;
const DATAGRAMS_FULL: u64 = 48_000;
const STREAM_BYTES: u64 = 6 << 20;
/// Another container of the host, and the host's end of its veth.
pub(super) const CONTAINER2: &str = "container2";
pub(super) const VETH2: &str = "veth1";

/// The time at which rules are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    /// Before splitting is switched on, as on a host whose firewall, CNI or service mesh is there when the module is loaded.
    First,
    /// When splitting is on, and no flow is split yet.
    Later,
    /// While the elephant is split. They are then taken away and made again, too.
    During,
}

/// Rules that a case makes, and how they are taken away.
pub(super) struct Change<'a> {
    pub(super) when: Rules,
    pub(super) make: &'a dyn Fn() -> Result<()>,
    pub(super) undo: &'a dyn Fn() -> Result<()>,
}

impl Change<'_> {
    /// None: a case's set-up makes all rules.
    pub(super) const NONE: Self = Self {
        when: Rules::First,
        make: &|| Ok(()),
        undo: &|| Ok(()),
    };

    /// Makes the rules, unless they are made while the elephant is split.
    pub(super) fn before(&self) -> Result<()> {
        match self.when {
            Rules::First | Rules::Later => (self.make)(),
            Rules::During => Ok(()),
        }
    }
}

pub(super) struct Host {
    pub(super) datagrams: u64,
    /// The number of datagrams that an elephant sends in a second.
    pub(super) elephant_pps: f64,
    pub(super) rig: Rig,
    clean_ups: &'static [CleanUp],
}

/// Takes away what the cases of a module may have left behind.
pub(super) type CleanUp = fn() -> Result<()>;

/// The results with `enabled` 0 and with 1.
#[derive(Debug)]
pub(super) struct Compared<T> {
    pub(super) off: T,
    pub(super) on: T,
}

impl<T: Debug> Compared<T> {
    /// Fails where a half is not as it has to be, and says which.
    pub(super) fn each(&self, check: impl Fn(&T) -> Result<()>) -> Result<()> {
        check(&self.off).context("with enabled 0")?;
        check(&self.on).context("with enabled 1")
    }

    /// Fails unless both halves have the same of this.
    pub(super) fn require_same<U: Debug + PartialEq>(&self, of: impl Fn(&T) -> &U) -> Result<()> {
        let (on, off) = (of(&self.on), of(&self.off));
        ensure!(on == off, "with enabled 1 {on:?}, with 0 {off:?}");
        Ok(())
    }
}

impl Host {
    /// Makes a host, which the clean-ups make a fresh one between cases.
    pub(super) fn new(full: bool, clean_ups: &'static [CleanUp]) -> Result<Self> {
        let datagrams = if full { DATAGRAMS_FULL } else { DATAGRAMS };
        let scale = Scale {
            main: datagrams,
            other: datagrams,
            tcp_main_bytes: 0,
            tcp_bytes: STREAM_BYTES,
            brief: !full,
        };
        let rig = Rig::calibrated(true, scale, CALIBRATION)?;
        topology::sysctl("net/core/rmem_default", RMEM_DEFAULT)?;
        Ok(Self {
            datagrams,
            elephant_pps: (rig.frames_per_s() * SHARE).min(MOST_PPS),
            rig,
            clean_ups,
        })
    }

    /// Measures on a host that is set up twice, with `enabled` 0 and with 1. Everything that the client sends has the same outer ports.
    /// Where rules come during the split, `set_up` leaves them to `measure`.
    pub(super) fn compare<T: Debug>(
        &self,
        outer: Family,
        rules: Rules,
        set_up: impl Fn() -> Result<()>,
        measure: impl Fn(&Self) -> Result<T>,
    ) -> Result<Compared<T>> {
        let half = |enabled: bool| {
            self.fresh(outer)?;
            let enable = || {
                if enabled {
                    mflow::write("enabled", "1")
                } else {
                    Ok(())
                }
            };
            match rules {
                Rules::First | Rules::During => set_up().and_then(|()| enable())?,
                Rules::Later => enable().and_then(|()| set_up())?,
            }
            measure(self).with_context(|| format!("with enabled {}", u8::from(enabled)))
        };
        Ok(Compared {
            off: half(false)?,
            on: half(true)?,
        })
    }

    /// Builds the network again, with the module loaded and `enabled` 0.
    pub(super) fn fresh(&self, outer: Family) -> Result<()> {
        self.clear()?;
        topology::up(outer)?;
        topology::one_outer_flow(outer)?;
        Rig::wait_ready(outer)?;
        mflow::load_idle(&Knobs {
            batch_pkts: BATCH_PKTS,
            ..Knobs::default()
        })
    }

    /// Takes away what cases leave behind on the host and at the client; what they have in the container goes with it.
    pub(super) fn clear(&self) -> Result<()> {
        mflow::unload()?;
        nft::flush(None)?;
        nft::flush(CLIENT)?;
        for clean_up in self.clean_ups {
            clean_up()?;
        }
        // Most have set up none.
        let _ = topology::tc("qdisc del dev eth0 clsact");
        for (name, value) in [
            ("net/ipv4/ip_forward", "0"),
            ("net/ipv6/conf/all/forwarding", "0"),
            ("net/ipv4/fib_multipath_hash_policy", "0"),
            ("net/ipv6/fib_multipath_hash_policy", "0"),
        ] {
            topology::sysctl(name, value)?;
        }
        let host = Netlink::open(None)?;
        if host.exists(VETH2) {
            host.delete(VETH2)?;
        }
        if netns::exists(CONTAINER2) {
            netns::delete(CONTAINER2)?;
        }
        Ok(())
    }
}
