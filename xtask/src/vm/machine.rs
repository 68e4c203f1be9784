// SPDX-License-Identifier: GPL-2.0

//! One guest: QEMU's command line, its life, and how it ends.
//!
//! Success is only ever a message `Exit` on the verdict port. A kernel that complains, a guest that ends without a word or
//! does not end at all is a failure, whatever was said before.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use mflow_protocol::guest::{Message, Order, KERNEL_LOG_PORT, LEAK_DETECTOR};
use tempfile::TempDir;

use super::docker::Docker;
use super::initramfs;
use super::instruments::{wire, Instruments};
use super::kernel_log::{self, Excerpt, Trouble};
use super::mlx5::{Cards, Server};
use super::scratch;
use super::serial::Serial;
use crate::paths;
use crate::setup::qemu;
use crate::step;
use crate::tools;

/// The interval at which the ports of a running guest are read.
const LOOK: Duration = Duration::from_millis(50);
/// The time for which a kernel that complains may go on, so that the log has all of it.
const LAST_WORDS: Duration = Duration::from_secs(4);
/// The time limit for a guest to power off after its verdict.
const POWER_OFF: Duration = Duration::from_secs(30);
/// The time limit for a guest to boot and power off when an accelerator is tried out.
const PROBE: Duration = Duration::from_secs(30);

/// The way the guest's instructions are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Accel {
    /// Translated by QEMU: slow, but it works everywhere.
    #[default]
    Tcg,
    /// By the processor itself.
    Kvm,
}

/// The number of threads of the host that carry out the instructions of the guest's CPUs under `tcg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// One for each CPU if this QEMU rarely runs code that the guest has replaced, else one for all.
    Usual,
    Many,
    One,
}

/// A machine to boot.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) image: PathBuf,
    pub(crate) modules: Option<PathBuf>,
    pub(crate) cpus: u16,
    pub(crate) memory_mib: u32,
    pub(crate) accel: Accel,
    pub(crate) threads: Threads,
    /// True if a checking kernel looks for memory that nothing points to any more, which makes it more than twice as slow.
    pub(crate) finds_leaks: bool,
    pub(crate) nics: Nics,
    /// Docker, if the guest has it.
    pub(crate) docker: Option<Docker>,
    /// Words that are added to the kernel's command line.
    pub(crate) append: Option<String>,
}

/// The two NICs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Nics {
    /// QEMU's own, whose receive buffers hold one frame each.
    VirtioSmall,
    /// QEMU's own, whose receive buffers are merged for large frames.
    #[default]
    Virtio,
    /// The model of a ConnectX; needs a QEMU that is newer than for everything else.
    Mlx5(Cards),
}

/// The place of the guest's terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// Our standard input and output.
    Here,
    /// A log file.
    Log,
}

/// An event in the life of a guest.
#[derive(Debug)]
pub enum Event {
    /// A message on the verdict port, but for the last.
    Said(Message),
    /// The kernel has found something wrong; its end follows.
    Complained,
    /// The command ended with this status and the guest powered off.
    Exit(i32),
    /// The guest is dead without a verdict, or had to be stopped.
    Trouble(Trouble),
}

/// A running guest.
pub struct Vm {
    child: Child,
    interactive: bool,
    verdicts: Serial,
    kernel_log: Serial,
    terminal_log: PathBuf,
    qemu_log: PathBuf,
    /// The time of the last line in the kernel's log.
    logged: Instant,
    excerpt: Excerpt,
    complaint: Option<(Instant, String)>,
    complaint_told: bool,
    /// The status of the guest's command, and the time since which the guest has had nothing left to do.
    exit: Option<(i32, Instant)>,
    pending: VecDeque<Message>,
    cards: Option<Server>,
    _initramfs: TempDir,
}

impl Machine {
    /// Tries an accelerator that may not work out on a guest that does nothing.
    pub(crate) fn probe(&self) -> Result<()> {
        if self.accel == Accel::Tcg {
            return Ok(());
        }
        let advice = "use --accel tcg";
        if !Path::new("/dev/kvm").exists() {
            bail!("there is no /dev/kvm on this machine; {advice}");
        }
        let order = Order {
            argv: vec!["true".to_owned()],
            ..Order::default()
        };
        let name = format!("vm-probe-{}", std::process::id());
        let mut vm = Vm::boot(self, &order, &name, Terminal::Log)?;
        loop {
            match vm.wait(Some(PROBE))? {
                Event::Exit(0) => {
                    vm.forget_logs();
                    return Ok(());
                }
                Event::Said(_) | Event::Complained => {}
                Event::Exit(code) => bail!("a trial guest under kvm ended with {code}; {advice}"),
                Event::Trouble(trouble) => {
                    bail!("/dev/kvm is there, but a trial guest does not run; {advice}\n{trouble}")
                }
            }
        }
    }

    fn command(
        &self,
        wire: &[OwnedFd; 2],
        initramfs: &Path,
        ports: [&str; 3],
        instruments: Option<&Instruments>,
        cards: Option<&Server>,
    ) -> Command {
        // Every QEMU that has the cards can count, too.
        let wish = match (cards, instruments) {
            (Some(_), _) => &qemu::VFIO_USER,
            (None, Some(instruments)) => &instruments.qemu,
            (None, None) => &qemu::SAFER_THREADS,
        };
        let mut command = ends_with_us(&qemu::command(wish));
        // The machine has nothing but what is named here; a guest that reboots has crashed.
        command.args(["-nodefaults", "-no-user-config", "-no-reboot"]);
        command.args(["-display", "none", "-machine", "pc"]);
        let many = match self.threads {
            Threads::Usual => qemu::has_safer_threads(),
            Threads::Many => true,
            Threads::One => false,
        };
        let tcg = if many {
            "tcg,thread=multi"
        } else {
            "tcg,thread=single"
        };
        match self.accel {
            // Without the fast-string features: translated, they cost an instruction per byte.
            Accel::Tcg => command.args(["-accel", tcg, "-cpu", "max,-erms,-fsrm"]),
            Accel::Kvm => command.args(["-accel", "kvm", "-cpu", "host"]),
        };
        command.args(["-smp", &self.cpus.to_string()]);
        command.args(["-m", &format!("{}M", self.memory_mib)]);
        command.arg("-kernel").arg(&self.image);
        command.arg("-initrd").arg(initramfs);
        // The kernel's log has a port of its own; a panic ends the guest at once.
        // Functions are where the kernel's symbol table says. Four-level page tables: KASAN asks
        // the boot CPU's features where its shadow begins, and a timer interrupt just while
        // identify_cpu() has zeroed them would see the five-level map as wild memory.
        let console = KERNEL_LOG_PORT.trim_start_matches("/dev/");
        let mut append =
            format!("console={console} panic=-1 oops=panic rdinit=/init nokaslr no5lvl");
        if self.finds_leaks {
            append.push(' ');
            append.push_str(LEAK_DETECTOR);
        }
        if let Some(words) = &self.append {
            append.push(' ');
            append.push_str(words);
        }
        command.args(["-append", &append]);
        for port in ports {
            command.args(["-serial", port]);
        }
        if let Some(instruments) = instruments {
            command.arg("-plugin").arg(&instruments.plugin);
            command.arg("-serial");
            command.arg(format!("unix:{}", instruments.credit.display()));
        }
        let ends = match cards {
            None => ends(wire, instruments),
            Some(cards) => {
                cards.attach(self.memory_mib, &mut command);
                Vec::new()
            }
        };
        for (nic, end) in ends.into_iter().enumerate() {
            command.args(["-netdev", &format!("stream,id=wire{nic},server=off,{end}")]);
            // As on a real wire, no frame is larger than the MTU, and every packet has its checksum.
            command.args([
                "-device",
                &format!(
                    "virtio-net-pci,netdev=wire{nic},mac=52:54:00:00:00:0{},rx_queue_size=1024,tx_queue_size=256,csum=off,\
                     guest_csum=off,gso=off,host_tso4=off,host_tso6=off,host_ufo=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,\
                     mrg_rxbuf={}",
                    nic + 1,
                    if self.nics == Nics::VirtioSmall { "off" } else { "on" }
                ),
            ]);
        }
        command
    }
}

/// Returns where the wires of QEMU's own NICs end.
fn ends(wire: &[OwnedFd; 2], instruments: Option<&Instruments>) -> Vec<String> {
    let inherited = wire
        .iter()
        .map(|end| format!("addr.type=fd,addr.str={}", end.as_raw_fd()));
    let third = instruments
        .map(|instruments| format!("addr.type=unix,addr.path={}", instruments.wire.display()));
    inherited.chain(third).collect()
}

/// Returns a command that is killed when this process ends, however it does; without `setpriv`, the same one.
///
/// Without its parent, a guest would keep the host's cores busy for ever.
fn ends_with_us(command: &Command) -> Command {
    let mut outer = match tools::find("setpriv") {
        Some(setpriv) => {
            let mut outer = Command::new(setpriv);
            outer.args(["--pdeathsig", "KILL", "--"]);
            outer.arg(command.get_program());
            outer
        }
        None => Command::new(command.get_program()),
    };
    outer.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Reads a line of the verdict port.
fn understand(line: &str) -> Result<Message> {
    serde_json::from_str(line).with_context(|| {
        format!(
            "the guest says {line:?}, which is none of the messages in tests/protocol/src/guest.rs"
        )
    })
}

impl Vm {
    /// Boots the machine; its logs are called after `name`.
    pub(crate) fn boot(
        machine: &Machine,
        order: &Order,
        name: &str,
        terminal: Terminal,
    ) -> Result<Self> {
        Self::boot_with(machine, order, name, terminal, None)
    }

    /// Boots the machine with instruments.
    pub fn boot_with(
        machine: &Machine,
        order: &Order,
        name: &str,
        terminal: Terminal,
        instruments: Option<Instruments>,
    ) -> Result<Self> {
        let logs = paths::logs()?;
        let dir = scratch::folder()?;
        let archive = dir.path().join("initramfs.cpio");
        let programs = instruments
            .as_ref()
            .map_or(&[][..], |instruments| &instruments.programs);
        initramfs::write(
            &archive,
            order,
            machine.modules.as_deref(),
            programs,
            machine.docker.as_ref(),
        )?;
        let terminal_log = logs.join(format!("{name}-terminal.log"));
        let kernel_log = Serial::create(&logs.join(format!("{name}-kernel.log")))?;
        let verdicts = Serial::create(&logs.join(format!("{name}-verdicts.log")))?;

        let file = |path: &Path| format!("file:{}", path.display());
        let here = match terminal {
            Terminal::Log => file(&terminal_log),
            // Ctrl-A X ends QEMU; Ctrl-C goes to the guest.
            Terminal::Here if order.interactive => "mon:stdio".to_owned(),
            Terminal::Here => "stdio".to_owned(),
        };
        let wire = wire()?;
        let cards = match machine.nics {
            Nics::Virtio | Nics::VirtioSmall => None,
            Nics::Mlx5(cards) => {
                let wire = instruments
                    .as_ref()
                    .map(|instruments| instruments.wire.as_path());
                Some(Server::start(cards, machine.cpus, wire, dir.path(), name)?)
            }
        };
        let mut command = machine.command(
            &wire,
            &archive,
            [&here, &file(verdicts.path()), &file(kernel_log.path())],
            instruments.as_ref(),
            cards.as_ref(),
        );
        if !order.interactive {
            command.stdin(Stdio::null());
        }
        let qemu_log = logs.join(format!("{name}-qemu.log"));
        command.stderr(File::create(&qemu_log)?);
        let line = step::shell_line(&command);
        let child = command
            .spawn()
            .with_context(|| format!("cannot run: {line}\ntry:  cargo xtask setup"))?;
        Ok(Self {
            child,
            interactive: order.interactive,
            verdicts,
            kernel_log,
            terminal_log,
            qemu_log,
            logged: Instant::now(),
            excerpt: Excerpt::default(),
            complaint: None,
            complaint_told: false,
            exit: None,
            pending: VecDeque::new(),
            cards,
            _initramfs: dir,
        })
    }

    /// Returns the file with what the guest's programs printed, if its terminal is a log.
    pub fn terminal_log(&self) -> &Path {
        &self.terminal_log
    }

    pub(crate) fn kernel_log(&self) -> &Path {
        self.kernel_log.path()
    }

    /// Returns the process that plays the guest's NICs, if one does.
    pub(crate) fn cards(&mut self) -> Option<&mut Server> {
        self.cards.as_mut()
    }

    /// Removes the logs of a guest that has ended well.
    pub fn forget_logs(&self) {
        for log in [
            self.verdicts.path(),
            self.kernel_log.path(),
            &self.terminal_log,
            &self.qemu_log,
        ]
        .into_iter()
        .chain(self.cards.iter().flat_map(Server::logs))
        {
            // A log that stays does no harm.
            let _best_effort = fs::remove_file(log);
        }
    }

    /// Waits for the next thing to happen; a guest that says nothing for `patience` is stopped.
    pub fn wait(&mut self, patience: Option<Duration>) -> Result<Event> {
        self.wait_or_log(patience, None)
    }

    /// Waits for the next thing to happen; a guest that says nothing for `patience`, or whose kernel logs nothing for `log`, is stopped.
    pub(crate) fn wait_or_log(
        &mut self,
        patience: Option<Duration>,
        log: Option<Duration>,
    ) -> Result<Event> {
        let start = Instant::now();
        loop {
            // Before the ports are read, so that the last lines of a guest that has ended are not missed.
            let ended = self.child.try_wait()?;
            for line in self.verdicts.lines()? {
                match understand(&line)? {
                    Message::Exit(code) => self.exit = Some((code, Instant::now())),
                    message => self.pending.push_back(message),
                }
            }
            self.read_kernel_log()?;
            if let Some(message) = self.pending.pop_front() {
                return Ok(Event::Said(message));
            }
            if self.complaint.is_some() && !self.complaint_told {
                self.complaint_told = true;
                return Ok(Event::Complained);
            }
            if let Some((since, what)) = &self.complaint {
                // A session at the terminal is not cut off; the complaint is reported when it ends.
                let over =
                    !self.interactive && (since.elapsed() > LAST_WORDS || self.excerpt.is_full());
                if ended.is_some() || over {
                    let what = what.clone();
                    return self.give_up(what);
                }
            }
            match (ended, self.exit) {
                (Some(_), Some((code, _))) => return Ok(Event::Exit(code)),
                (Some(status), None) => {
                    let said = fs::read_to_string(&self.qemu_log).unwrap_or_default();
                    let what = format!("it ended without a verdict; QEMU: {status}: {said}");
                    return self.give_up(what);
                }
                (None, Some((_, since))) if since.elapsed() > POWER_OFF => {
                    return self.give_up("it did not power off".to_owned());
                }
                (None, _) => {}
            }
            let limits = [(patience, start), (log, self.logged)];
            let passed = |&(limit, since): &(Option<Duration>, Instant)| {
                limit.filter(|&limit| since.elapsed() > limit)
            };
            if let Some(limit) = limits.iter().find_map(passed) {
                let what = format!("{} {} s", kernel_log::SILENCE, limit.as_secs());
                return self.give_up(what);
            }
            thread::sleep(LOOK);
        }
    }

    fn read_kernel_log(&mut self) -> Result<()> {
        for line in self.kernel_log.lines()? {
            self.logged = Instant::now();
            if self.complaint.is_some() && self.excerpt.is_full() {
                break;
            }
            self.excerpt.push(&line);
            if self.complaint.is_none() {
                if let Some((marker, meaning)) = kernel_log::find(&line) {
                    self.excerpt.keep_last();
                    let what = format!("{meaning}: its kernel's log says {marker:?}");
                    self.complaint = Some((Instant::now(), what));
                }
            }
        }
        Ok(())
    }

    fn give_up(&mut self, what: String) -> Result<Event> {
        self.stop()?;
        Ok(Event::Trouble(Trouble {
            what,
            excerpt: std::mem::take(&mut self.excerpt),
            log: self.kernel_log.path().to_path_buf(),
        }))
    }

    fn stop(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            self.child.kill()?;
            self.child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _best_effort = self.stop();
    }
}
