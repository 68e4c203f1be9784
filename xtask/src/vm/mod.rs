// SPDX-License-Identifier: GPL-2.0

//! The virtual machine: a kernel of ours, an initramfs made on the spot, two NICs on one wire.

mod cpio;
pub(crate) mod docker;
mod initramfs;
mod instruments;
mod kernel_log;
mod machine;
mod mlx5;
mod programs;
mod scratch;
mod serial;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{bail, Result};
use mflow_protocol::guest::Order;

pub use self::instruments::Instruments;
pub(crate) use self::kernel_log::Excerpt;
pub use self::kernel_log::Trouble;
pub use self::machine::{Accel, Event, Machine, Terminal, Vm};
pub(crate) use self::machine::{Nics, Threads};
pub(crate) use self::mlx5::{layouts, model_program, Cards};
pub(crate) use self::programs::guest_program;

use crate::kernel::{self, Flavor};
use crate::setup::{self, qemu, Need};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    hardware: Hardware,
    /// Kernel to boot
    #[arg(long, value_enum, default_value_t)]
    flavor: Flavor,
    /// Boot this kernel image instead of ours
    #[arg(long, value_name = "BZIMAGE", conflicts_with = "flavor")]
    kernel_image: Option<PathBuf>,
    /// The modules of --kernel-image: a folder `.../lib/modules/RELEASE`
    #[arg(long, value_name = "DIR", requires = "kernel_image")]
    modules: Option<PathBuf>,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// The command to run instead of a shell
    #[arg(last = true)]
    command: Vec<String>,
}

/// The parts of the machine.
#[derive(Clone, Debug, clap::Args)]
pub struct Hardware {
    /// Virtual CPUs; the test network needs 8
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub cpus: u16,
    /// Memory; enough for the checking kernel too
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(256..))]
    pub memory_mib: u32,
    /// tcg runs everywhere; kvm is faster where /dev/kvm works, which is tried out first
    #[arg(long, value_enum, default_value_t)]
    pub accel: Accel,
    /// The two NICs: QEMU's own, or a model of a ConnectX card, whose receive buffers hold one frame or several
    #[arg(long, value_enum, default_value_t)]
    pub nic: Nic,
    /// Words to add to the kernel's command line, as `isolcpus=8`
    #[arg(long, value_name = "WORDS")]
    pub append: Option<String>,
}

/// A kind of NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Nic {
    /// virtio-net, whose receive buffers are merged for large frames.
    #[default]
    Virtio,
    /// virtio-net, whose receive buffers hold one frame each.
    VirtioSmall,
    /// A ConnectX with cyclic receive queues.
    Mlx5,
    /// A ConnectX with striding receive queues.
    Mlx5Striding,
}

impl Nic {
    /// Returns its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::VirtioSmall => "virtio-small",
            Self::Mlx5 => "mlx5",
            Self::Mlx5Striding => "mlx5-striding",
        }
    }

    /// Returns whether the model of a ConnectX plays it.
    pub fn is_connectx(self) -> bool {
        matches!(self, Self::Mlx5 | Self::Mlx5Striding)
    }
}

impl Hardware {
    fn nics(&self) -> Result<Nics> {
        let striding = match self.nic {
            Nic::Virtio => return Ok(Nics::Virtio),
            Nic::VirtioSmall => return Ok(Nics::VirtioSmall),
            Nic::Mlx5 => false,
            Nic::Mlx5Striding => true,
        };
        if let Some(why) = qemu::obtain(&qemu::VFIO_USER)? {
            bail!(
                "the model of a ConnectX needs QEMU {} or newer: {why}; try: cargo xtask setup",
                qemu::VFIO_USER.least
            );
        }
        Ok(Nics::Mlx5(Cards { striding }))
    }

    fn machine(&self, image: PathBuf, modules: Option<PathBuf>) -> Result<Machine> {
        Ok(Machine {
            image,
            modules,
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            accel: self.accel,
            threads: Threads::Usual,
            finds_leaks: false,
            nics: self.nics()?,
            docker: None,
            append: self.append.clone(),
        })
    }
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            cpus: 8,
            memory_mib: 1024,
            accel: Accel::default(),
            nic: Nic::default(),
            append: None,
        }
    }
}

/// Returns the machine for a kernel of ours, built first if it has to be.
pub fn machine(flavor: Flavor, hardware: &Hardware) -> Result<Machine> {
    setup::ensure(&[Need::Kernel, Need::Vm])?;
    let kernel = kernel::ensure(flavor)?;
    let machine = hardware.machine(kernel.image, Some(kernel.modules))?;
    Ok(Machine {
        finds_leaks: flavor == Flavor::Debug,
        ..machine
    })
}

/// Returns the machine for another kernel.
pub fn machine_of(hardware: &Hardware, image: PathBuf, modules: PathBuf) -> Result<Machine> {
    setup::ensure(&[Need::Vm])?;
    hardware.machine(image, Some(modules))
}

/// Runs `vm`: returns the exit status of the command in the guest.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let machine = match options.kernel_image {
        None => machine(options.flavor, &options.hardware)?,
        Some(image) => {
            setup::ensure(&[Need::Vm])?;
            options.hardware.machine(image, options.modules)?
        }
    };
    let interactive = options.command.is_empty();
    if interactive && !io::stdin().is_terminal() {
        bail!("standard input is no terminal; give a command: cargo xtask vm -- COMMAND");
    }
    machine.probe()?;
    let order = Order {
        argv: if interactive {
            vec!["bash".to_owned(), "-i".to_owned()]
        } else {
            options.command
        },
        interactive,
        env: environment(),
    };
    // Several guests may run at once, each with logs of its own.
    let name = format!("vm-{}", std::process::id());
    let mut vm = Vm::boot(&machine, &order, &name, Terminal::Here)?;
    let timeout = options.timeout.map(Duration::from_secs);
    loop {
        match vm.wait(timeout)? {
            Event::Exit(code) => {
                vm.forget_logs();
                // CAST: an exit status has eight bits.
                return Ok(ExitCode::from(code as u8));
            }
            // The guest's own programs tell the host what they have found.
            Event::Said(message) if !interactive => {
                println!("{}", serde_json::to_string(&message)?);
            }
            Event::Said(_) | Event::Complained => {}
            Event::Trouble(trouble) => bail!("{trouble}"),
        }
    }
}

fn environment() -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([("HOME".to_owned(), "/root".to_owned())]);
    for name in ["TERM", "COLORTERM"] {
        if let Ok(value) = std::env::var(name) {
            env.insert(name.to_owned(), value);
        }
    }
    env.insert("PS1".to_owned(), r"guest:\w\$ ".to_owned());
    env
}
