// SPDX-License-Identifier: GPL-2.0

//! Process 1: mounts what programs expect, runs the one command it was told to, says how that ended, powers off.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mflow_protocol::guest::{Message, Order, NO_DEBUGFS, ORDER_FILE, TERMINAL_PORT};
use nix::errno::Errno;
use nix::mount::{mount, MsFlags};
use nix::sys::reboot::{reboot, RebootMode};
use nix::sys::termios::{cfmakeraw, tcdrain, tcgetattr, tcsetattr, SetArg};
use nix::sys::wait::{wait, WaitStatus};
use nix::unistd::Pid;

use crate::machine::command;
use crate::verdict;

/// The place of the kernel's events.
pub(crate) const TRACEFS: &str = "/sys/kernel/tracing";
/// The folders in which the distribution keeps programs; the kernel gives its first process no such list.
const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The exit code of a shell when a program cannot be started.
const CANNOT_RUN: i32 = 127;

pub(crate) fn main() -> ! {
    let code = match prepare().and_then(|()| obey()) {
        Ok(code) => code,
        Err(error) => {
            // Standard error of process 1 is the kernel's console: the host finds it in that log.
            eprintln!("init: error: {error:#}");
            CANNOT_RUN
        }
    };
    verdict::say(&Message::Exit(code));
    if let Ok(terminal) = File::open(TERMINAL_PORT) {
        let _drained = tcdrain(terminal);
    }
    power_off();
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

fn power_off() {
    let Err(error) = reboot(RebootMode::RB_POWER_OFF);
    eprintln!("init: cannot power off: {error}");
}

fn prepare() -> Result<()> {
    let mounts = [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("devpts", "/dev/pts"),
        ("tmpfs", "/run"),
        ("tmpfs", "/tmp"),
        ("debugfs", "/sys/kernel/debug"),
        ("tracefs", TRACEFS),
        ("bpf", "/sys/fs/bpf"),
    ];
    for (kind, target) in mounts {
        // /proc comes first.
        if kind == "debugfs" && command::was_booted_with(NO_DEBUGFS)? {
            continue;
        }
        // Not each kernel has it.
        if kind == "tracefs" && !Path::new(target).exists() {
            continue;
        }
        fs::create_dir_all(target).with_context(|| format!("cannot create {target}"))?;
        mount(
            Some(kind),
            target,
            Some(kind),
            MsFlags::empty(),
            None::<&str>,
        )
        .with_context(|| format!("cannot mount {kind} on {target}"))?;
    }
    std::env::set_var("PATH", SEARCH_PATH);
    load_drivers();
    nix::unistd::sethostname("mflow-guest")?;
    command::run("ip link set lo up")?;
    Ok(())
}

/// A distribution's kernel has the drivers of the machine as modules, and here is nobody else to load them.
fn load_drivers() {
    if Path::new("/sys/bus/virtio/drivers/virtio_net").exists() {
        return;
    }
    if let Err(error) = command::run("modprobe --all virtio_pci virtio_net") {
        // Without a NIC there is still a shell.
        eprintln!("init: {error:#}");
    }
}

fn obey() -> Result<i32> {
    let text = fs::read_to_string(ORDER_FILE).context(ORDER_FILE)?;
    let order: Order = serde_json::from_str(&text).context(ORDER_FILE)?;
    let mut terminal = OpenOptions::new()
        .read(true)
        .write(true)
        .open(TERMINAL_PORT)?;
    if !order.interactive {
        // Bytes pass as they are: no echo, no carriage returns.
        let mut settings = tcgetattr(&terminal)?;
        cfmakeraw(&mut settings);
        tcsetattr(&terminal, SetArg::TCSANOW, &settings)?;
    }
    let (program, arguments) = order.argv.split_first().context("no command")?;
    let mut command = if order.interactive {
        // Job control and Ctrl-C need a controlling terminal.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", program]);
        command
    } else {
        Command::new(program)
    };
    let child = command
        .args(arguments)
        .envs(&order.env)
        .current_dir("/root")
        .stdin(terminal.try_clone()?)
        .stdout(terminal.try_clone()?)
        .stderr(terminal.try_clone()?)
        .spawn();
    let child = match child {
        Ok(child) => child,
        Err(error) => {
            writeln!(terminal, "cannot run {program}: {error}")?;
            return Ok(CANNOT_RUN);
        }
    };
    // CAST: process ids fit in an i32.
    let status = reap_until(Pid::from_raw(child.id() as i32))?;
    // What a shell makes of a signal.
    Ok(status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

/// Waits for `main`, and for every orphan meanwhile, as process 1 has to.
fn reap_until(main: Pid) -> Result<ExitStatus> {
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, code)) if pid == main => {
                return Ok(ExitStatus::from_raw(code << 8));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == main => {
                return Ok(ExitStatus::from_raw(signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("cannot wait for the command"),
        }
    }
}
