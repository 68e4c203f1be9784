// SPDX-License-Identifier: GPL-2.0

//! The baseline for measurements of chains: programs at XDP that do as little as a program can, `c-shims/hike/baseline.bpf.c`.

use anyhow::{Context as _, Result};
use aya::maps::DevMap;
use aya::programs::xdp::XdpMode;
use aya::programs::Xdp;
use aya::Ebpf;

use crate::instance::loader;

/// A program that a device has; it leaves the device when this is dropped.
pub struct Baseline(#[expect(dead_code, reason = "what it holds ends with it")] Ebpf);

impl Baseline {
    /// Makes all packets of a device leave by another one, as they are.
    pub fn pass_through(device: &str, port: u32) -> Result<Self> {
        let mut object = loader::baseline()?;
        let map = object.map_mut("port").context("no map port")?;
        DevMap::try_from(map)?
            .set(0, port, None, 0)
            .with_context(|| format!("device {port} cannot be a port"))?;
        Self::attach(object, "hike_pass_through", device)
    }

    /// Drops all packets of a device.
    pub fn discard(device: &str) -> Result<Self> {
        Self::attach(loader::baseline()?, "hike_discard", device)
    }

    fn attach(mut object: Ebpf, program: &str, device: &str) -> Result<Self> {
        loader::load(&mut object, program)?;
        let entry: &mut Xdp = loader::program(&mut object, program)?.try_into()?;
        entry
            .attach(device, XdpMode::Driver)
            .with_context(|| format!("the driver of {device} takes no XDP program"))?;
        Ok(Self(object))
    }
}
