// SPDX-License-Identifier: GPL-2.0

//! One boot of the guest: orders cases, makes the frames that the guest asks for, and puts the guest's words and the
//! plug-in's counts together.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, Result};
use mflow_protocol::bench::{Case, End, Load, Server, Window};
use mflow_protocol::cpus;
use mflow_protocol::guest::{Message, Order, CHANNELS, KERNEL_FUNCTIONS};

use super::instructions::{Counts, Symbols};
use super::plugin;
use crate::bench::sender::Feed;
use xtask::kernel::{self, Flavor};
use xtask::module;
use xtask::setup::{self, Need};
use xtask::vm::{self, Event, Hardware, Instruments, Machine, Terminal, Vm};

/// The longest time for which a guest may be silent.
const PATIENCE: Duration = Duration::from_secs(120);

/// One window of a case: the packets that were delivered, and the counts of instructions for them.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) window: Window,
    pub(crate) counts: Counts,
}

/// The results of one mode of a case.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) windows: Vec<Measured>,
    pub(crate) end: End,
}

pub(crate) struct Session {
    vm: Vm,
    feed: Feed,
    /// The number of segments that the feed had sent again when it was asked last.
    sent_again: u64,
    counted: PathBuf,
    symbols: Symbols,
    release: String,
    /// The number of the next window, as the plug-in numbers the windows of a boot.
    windows: u64,
    /// The cause of the guest's death, if it has died.
    death: Option<Death>,
    _dir: tempfile::TempDir,
}

/// The kernel that a session boots.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Boots<'a> {
    Ours(Flavor),
    /// A distribution's kernel of that name, with the module for it.
    Distribution(&'a str),
}

impl Boots<'_> {
    /// Returns the machine, the addresses of the kernel's functions, and the kernel's release.
    fn machine(self, hardware: &Hardware) -> Result<(Machine, Symbols, String)> {
        match self {
            Self::Ours(flavor) => {
                let machine = vm::machine(flavor, hardware)?;
                let kernel = kernel::ensure(flavor)?;
                let symbols = Symbols::read(&kernel.build_dir.join("System.map"))?;
                Ok((machine, symbols, kernel.release))
            }
            Self::Distribution(name) => {
                let kernel = module::in_distribution(name)?;
                let machine = vm::machine_of(hardware, kernel.image, kernel.modules)?;
                // A distribution's packages do not say where the kernel's functions are. The guest says it.
                Ok((machine, Symbols::default(), kernel.release))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// The emulator crashed.
    Emulators,
    Guests,
}

impl Session {
    /// Boots a kernel for these cases. [`Session::next`] returns their results one by one, in the order of the cases. The
    /// names of the logs contain the boot's number. The logs stay if a guest dies.
    pub(crate) fn boot(
        number: usize,
        boots: Boots<'_>,
        hardware: &Hardware,
        cases: &[Case],
    ) -> Result<Self> {
        let mut needs = vec![Need::Kernel, Need::Vm];
        let programs = programs(cases);
        if !programs.is_empty() {
            needs.push(Need::Applications);
        }
        setup::ensure(&needs)?;
        let library = plugin::build(hardware.nic)?;
        // CAST: ten.
        let needed = cpus::NEEDED_TO_BENCH as u16;
        let hardware = Hardware {
            cpus: hardware.cpus.max(needed),
            ..hardware.clone()
        };
        let (machine, symbols, release) = boots.machine(&hardware)?;
        let dir = tempfile::tempdir()?;
        let counted = dir.path().join("counted");
        let wire = dir.path().join("wire");
        let credit = dir.path().join("credit");
        let feed = Feed::start(&wire, &credit)?;
        let option = plugin_option(&library, &counted);
        let instruments = Instruments {
            plugin: option,
            wire,
            credit,
            programs,
            qemu: plugin::COUNTING,
        };
        // One queue, as the other NIC has.
        let mut env = BTreeMap::from([(CHANNELS.to_owned(), "1".to_owned())]);
        if matches!(boots, Boots::Distribution(_)) {
            env.insert(KERNEL_FUNCTIONS.to_owned(), "1".to_owned());
        }
        let order = Order {
            argv: vec![
                "mflow-guest".to_owned(),
                "bench".to_owned(),
                serde_json::to_string(cases)?,
            ],
            interactive: false,
            env,
        };
        let name = format!("bench-{}-{number}", std::process::id());
        let vm = Vm::boot_with(&machine, &order, &name, Terminal::Log, Some(instruments))?;
        Ok(Self {
            vm,
            feed,
            sent_again: 0,
            counted,
            symbols,
            release,
            windows: 0,
            death: None,
            _dir: dir,
        })
    }

    /// Returns the kernel's name.
    pub(crate) fn release(&self) -> &str {
        &self.release
    }

    /// Returns how the guest died, if it has died. There is no next case then.
    pub(crate) fn death(&self) -> Option<Death> {
        self.death
    }

    pub(crate) fn next(&mut self) -> Result<Outcome> {
        let mut windows = Vec::new();
        loop {
            match self.vm.wait(Some(PATIENCE))? {
                Event::Said(message) => match message {
                    Message::Load(order) => self.feed.order(order),
                    Message::KernelSymbols(functions) => self.symbols.add_kernel(&functions)?,
                    Message::Symbols(functions) => {
                        self.symbols.add_modules(&functions)?;
                        // The first window begins here. Segments that were sent again before it do not count.
                        self.sent_again();
                    }
                    Message::Window(mut window) => {
                        window.lost += self.sent_again();
                        let counts = Counts::read(&self.counted, self.windows, &self.symbols)?;
                        self.windows += 1;
                        windows.push(Measured { window, counts });
                    }
                    Message::End(end) => return Ok(Outcome { windows, end }),
                    Message::Error(error) => bail!("{error}"),
                    other => bail!("no benchmark says {other:?}"),
                },
                Event::Complained => {}
                Event::Exit(code) => {
                    self.death = Some(Death::Guests);
                    bail!(
                        "the guest program ended with {code}; see {}",
                        self.vm.terminal_log().display()
                    )
                }
                Event::Trouble(trouble) => {
                    self.death = Some(if trouble.is_emulators() {
                        Death::Emulators
                    } else {
                        Death::Guests
                    });
                    bail!("{trouble}")
                }
            }
        }
    }

    /// Returns how many segments have been sent again since the last call.
    fn sent_again(&mut self) -> u64 {
        let now = self.feed.sent_again();
        now - std::mem::replace(&mut self.sent_again, now)
    }

    /// Waits until the guest has powered off.
    pub(crate) fn end(mut self) -> Result<()> {
        loop {
            match self.vm.wait(Some(PATIENCE))? {
                Event::Said(_) | Event::Complained => {}
                Event::Exit(_) => {
                    self.vm.forget_logs();
                    return Ok(());
                }
                Event::Trouble(trouble) => bail!("{trouble}"),
            }
        }
    }
}

/// Returns the programs that the guest needs for these cases only.
fn programs(cases: &[Case]) -> Vec<&'static str> {
    let mut programs = BTreeSet::new();
    for case in cases {
        match case.load {
            Load::Requests {
                server: Server::Memcached,
                ..
            } => programs.extend(["memcached", "memcaslap"]),
            Load::Requests {
                server: Server::Nginx,
                ..
            } => programs.extend(["nginx", "wrk"]),
            Load::Frames { .. }
            | Load::Forwarded { .. }
            | Load::Stream { .. }
            | Load::Iperf3 { .. }
            | Load::Sockperf { .. } => {}
        }
    }
    programs.into_iter().collect()
}

fn plugin_option(library: &Path, counted: &Path) -> OsString {
    let mut option = OsString::from("file=");
    option.push(library);
    option.push(",out=");
    option.push(counted);
    option
}
