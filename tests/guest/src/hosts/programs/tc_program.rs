// SPDX-License-Identifier: GPL-2.0

//! Programs at the traffic control of a device, as network plugins have them: instructions with jumps to names, loaded and attached
//! by `tc`.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use nix::mount::{mount, MsFlags};

use crate::network::bpf::{self, Pinned, Tcx, TcxSide};
use crate::network::netns;
use crate::network::topology::Family;

/// Another folder than the usual one, which `ip netns exec` hides.
const FOLDER: &str = "/run/programs";

// The number of programs that have had a path.
static PINNED: AtomicUsize = AtomicUsize::new(0);

/// The answers of a program: the packet goes on, is dropped, or is for the next program at this place (-1).
pub(super) const OK: u32 = 0;
pub(super) const SHOT: u32 = 2;
pub(super) const NEXT: u32 = u32::MAX;

/// The places of what a program reads in a packet of a family, from Ethernet's header on.
pub(super) struct Offsets {
    /// The type of Ethernet, as a little-endian CPU reads it.
    pub(super) kind: u32,
    pub(super) protocol: i16,
    pub(super) addresses: i16,
    /// Bytes of both addresses.
    pub(super) address_bytes: i16,
    pub(super) ports: i16,
}

impl Offsets {
    pub(super) fn of(family: Family) -> Self {
        match family {
            Family::V4 => Self {
                kind: 0x0008,
                protocol: 23,
                addresses: 26,
                address_bytes: 8,
                ports: 34,
            },
            Family::V6 => Self {
                kind: 0xdd86,
                protocol: 20,
                addresses: 22,
                address_bytes: 32,
                ports: 54,
            },
        }
    }
}

/// Code that is being written.
#[derive(Default)]
pub(super) struct Code {
    instructions: Vec<u64>,
    jumps: Vec<(usize, &'static str)>,
    names: Vec<(&'static str, usize)>,
}

impl Code {
    /// Adds an instruction: its code, the registers that it is about, an offset and a number.
    pub(super) fn add(&mut self, code: u8, to: u8, from: u8, offset: i16, number: u32) {
        // CAST: the bits of a negative offset are what the kernel reads.
        let instruction = u64::from(code)
            | u64::from(to | from << 4) << 8
            | u64::from(offset as u16) << 16
            | u64::from(number) << 32;
        self.instructions.push(instruction);
    }

    /// Copies a register.
    pub(super) fn copy(&mut self, to: u8, from: u8) {
        self.add(0xbf, to, from, 0, 0);
    }

    /// Sets a register to a number, whose highest bit is its sign.
    pub(super) fn set(&mut self, to: u8, number: u32) {
        self.add(0xb7, to, 0, 0, number);
    }

    /// Adds a number to a register.
    pub(super) fn plus(&mut self, to: u8, number: i32) {
        // CAST: as above.
        self.add(0x07, to, 0, 0, number as u32);
    }

    /// Reads one, two, four or eight bytes.
    pub(super) fn read(&mut self, bytes: u8, to: u8, from: u8, offset: i16) {
        self.add(0x61 & !0x18 | size(bytes), to, from, offset, 0);
    }

    /// Writes one, two, four or eight bytes.
    pub(super) fn write(&mut self, bytes: u8, to: u8, offset: i16, from: u8) {
        self.add(0x63 & !0x18 | size(bytes), to, from, offset, 0);
    }

    /// Writes two or four bytes that are given.
    pub(super) fn write_number(&mut self, bytes: u8, to: u8, offset: i16, number: u32) {
        self.add(0x62 & !0x18 | size(bytes), to, 0, offset, number);
    }

    /// Calls one of the kernel's functions.
    pub(super) fn call(&mut self, function: u32) {
        self.add(0x85, 0, 0, 0, function);
    }

    /// Goes on at a name.
    pub(super) fn go(&mut self, name: &'static str) {
        self.jump(0x05, 0, 0, 0, name);
    }

    /// Goes on at a name if the register is the number, or is another.
    pub(super) fn go_if(&mut self, is_equal: bool, register: u8, number: u32, name: &'static str) {
        let code = if is_equal { 0x15 } else { 0x55 };
        self.jump(code, register, 0, number, name);
    }

    /// Goes on at a name if the first register is greater.
    pub(super) fn go_if_greater(&mut self, register: u8, than: u8, name: &'static str) {
        self.jump(0x2d, register, than, 0, name);
    }

    fn jump(&mut self, code: u8, to: u8, from: u8, number: u32, name: &'static str) {
        self.jumps.push((self.instructions.len(), name));
        self.add(code, to, from, 0, number);
    }

    /// Names the place of the next instruction.
    pub(super) fn name(&mut self, name: &'static str) {
        self.names.push((name, self.instructions.len()));
    }

    /// Ends with this answer.
    pub(super) fn end(&mut self, answer: u32) {
        self.set(0, answer);
        self.exit();
    }

    /// Ends with what the last function has returned.
    pub(super) fn exit(&mut self) {
        self.add(0x95, 0, 0, 0, 0);
    }

    /// Sets a register to a map of which this is the number: an instruction of two parts.
    pub(super) fn map(&mut self, to: u8, number: u32) {
        self.add(0x18, to, 1, 0, number);
        self.add(0, 0, 0, 0, 0);
    }

    /// Returns the instructions.
    pub(super) fn finish(mut self) -> Result<Vec<u64>> {
        for (place, name) in self.jumps {
            let found = self.names.iter().find(|(known, _)| *known == name);
            let (_, target) = found.with_context(|| format!("no place is named {name}"))?;
            // CAST: all jumps go forward, in some dozen instructions.
            self.instructions[place] |= ((target - place - 1) as u64) << 16;
        }
        Ok(self.instructions)
    }

    /// Attaches a program to one side of a device, behind those that are there.
    pub(super) fn link(self, device: &str, side: TcxSide) -> Result<Tcx> {
        Tcx::attach(device, side, &self.finish()?)
    }

    /// Attaches a program to what comes in at a device of a namespace, or goes out there, until the device goes. It takes the place
    /// of the program that was attached so before.
    pub(super) fn attach(self, namespace: Option<&str>, device: &str, way: &str) -> Result<Pinned> {
        if !Path::new(FOLDER).exists() {
            fs::create_dir(FOLDER)?;
            let none = None::<&str>;
            mount(Some("bpf"), FOLDER, Some("bpf"), MsFlags::empty(), none).context(FOLDER)?;
        }
        let number = PINNED.fetch_add(1, Ordering::Relaxed);
        let path = format!("{FOLDER}/{device}-{way}-{number}");
        let program = bpf::pin_classifier(&self.finish()?, &path)?;
        for line in [
            format!("tc qdisc replace dev {device} clsact"),
            format!(
                "tc filter replace dev {device} {way} pref 1 handle 1 bpf direct-action object-pinned {path}"
            ),
        ] {
            netns::run(namespace, &line)?;
        }
        Ok(program)
    }
}

/// Returns the bits of an instruction that say how many bytes it reads or writes.
fn size(bytes: u8) -> u8 {
    match bytes {
        1 => 0x10,
        2 => 0x08,
        4 => 0,
        _ => 0x18,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_that_of_the_kernel() {
        let mut code = Code::default();
        code.copy(6, 1);
        code.go_if(false, 3, 8, "end");
        code.read(1, 3, 7, 22);
        code.write(2, 7, 24, 3);
        code.name("end");
        code.end(OK);
        let finished = code.finish().expect("all places are named");
        assert_eq!(
            finished,
            [
                0x16bf,
                0x0000_0008_0002_0355,
                0x0016_7371,
                0x0018_376b,
                0xb7,
                0x95
            ]
        );
    }
}
