// SPDX-License-Identifier: GPL-2.0

//! HIKE: chains of BPF programs at XDP and tcx, against a model of each program and with the kernel's own segment routing as the peer.

mod cache;
mod delay;
pub(crate) mod demo;
mod loss;
mod manager;
mod model;
mod network;
mod peers;
mod routes;
mod tables;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use mflow_hike::{Caching, Engine, Hike, Hook};
use mflow_protocol::guest::SEED;

use crate::runner::{self, Selection};

/// The mount point of a BPF file system.
const PINS: &str = "/sys/fs/bpf";

/// The Ethernet address that frames of test runs at XDP are for, and the device that they seem to come from: the loopback device.
const TEST_RUN_MAC: [u8; 6] = [2; 6];
const TEST_RUN_DEVICE: u32 = 1;

/// Options of `hike`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    selection: Selection,
    /// Random frames that are held against the model.
    #[arg(long, default_value_t = 20_000)]
    frames: u64,
    /// The number of times that chains and classes are replaced under packets.
    #[arg(long, default_value_t = 500)]
    changes: u32,
    /// Run all variants of a case, some of which are drawn otherwise.
    #[arg(long)]
    whole: bool,
}

/// The amount of work that a case does.
struct Scale {
    frames: u64,
    changes: u32,
    whole: bool,
    /// The seed of everything that is drawn.
    seed: u64,
}

impl Scale {
    /// Returns one in this many of these, the first of which is drawn; the whole run has all.
    fn drawn<T>(&self, all: impl IntoIterator<Item = T>, every: usize) -> Vec<T> {
        if self.whole {
            return all.into_iter().collect();
        }
        // CAST: the low bits of what is drawn.
        let first = self.seed as usize % every;
        all.into_iter().skip(first).step_by(every).collect()
    }
}

type Case = runner::Case<fn(&Scale) -> Result<()>>;

fn all() -> Vec<Case> {
    [
        model::differential::cases(),
        tables::classes::cases(),
        tables::full::cases(),
        tables::buffers::cases(),
        loss::exact_flows::cases(),
        loss::path_flows::cases(),
        loss::flow_ids::cases(),
        tables::refusals::cases(),
        tables::access_list::cases(),
        peers::kernel::cases(),
        peers::other_hosts::cases(),
        peers::own_traffic::cases(),
        peers::port_drops::cases(),
        peers::required_hmac::cases(),
        peers::sids::cases(),
        peers::selftests::cases(),
        peers::tcx::cases(),
        peers::too_big::cases(),
        routes::oracle::cases(),
        routes::vlan::cases(),
        routes::vrf::cases(),
        routes::multipath::cases(),
        routes::changes::cases(),
        loss::blocks::cases(),
        loss::full_rate::cases(),
        cache::cases(),
        delay::reflector::cases(),
        delay::path::cases(),
        delay::sessions::cases(),
        manager::transactions::cases(),
        manager::rules::cases(),
        manager::watch::cases(),
        manager::kernel::cases(),
        manager::devices::cases(),
        manager::ports::cases(),
        manager::nics::cases(),
        manager::notes::cases(),
        manager::socket::cases(),
        manager::sids::cases(),
        manager::inside::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut hasher = DefaultHasher::new();
    std::env::var(SEED).unwrap_or_default().hash(&mut hasher);
    let scale = Scale {
        frames: options.frames,
        changes: options.changes,
        whole: options.whole,
        seed: hasher.finish(),
    };
    runner::run_selected("hike", &options.selection, all(), |run| run(&scale))
}

/// Makes an instance that no other has to do with.
pub(crate) fn instance(engine: Engine) -> Result<Hike> {
    instance_at(Hook::Xdp, engine)
}

/// The same at a hook.
pub(crate) fn instance_at(hook: Hook, engine: Engine) -> Result<Hike> {
    instance_with(hook, engine, Caching::default())
}

/// The same with a cache like this, or without.
pub(crate) fn instance_with(hook: Hook, engine: Engine, caching: Caching) -> Result<Hike> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    // ORDERING: Nothing else depends on it.
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let folder = Path::new(PINS).join(format!("hike{number}"));
    let mut hike = Hike::with_cache(hook, &folder, engine, caching)?;
    if hook == Hook::Xdp {
        hike.set_device(TEST_RUN_DEVICE, TEST_RUN_MAC)?;
    }
    Ok(hike)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_share_out_what_is_drawn() {
        let drawn = |seed, whole| {
            let scale = Scale {
                frames: 0,
                changes: 0,
                whole,
                seed,
            };
            scale.drawn(0..7, 3)
        };
        assert_eq!(drawn(9, false), [0, 3, 6]);
        assert_eq!(drawn(10, false), [1, 4]);
        assert_eq!(drawn(11, false), [2, 5]);
        assert_eq!(drawn(11, true).len(), 7);
    }

    #[test]
    fn names_are_unique_and_can_be_listed() {
        runner::require_good_names(all().iter().map(|case| case.name));
    }
}
