// SPDX-License-Identifier: GPL-2.0

//! The process that plays ConnectX cards for one guest (`tests/mlx5-model`).

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use anyhow::{bail, Context as _, Result};
use tempfile::NamedTempFile;

use crate::builds;
use crate::kernel;
use crate::paths;
use crate::step::Step;
use crate::tools;

const FOLDER: &str = "target/mlx5";
/// The file with the driver's structures, in the kernel source.
const HEADER: &str = "include/linux/mlx5/mlx5_ifc.h";
/// The time limit for the process to begin, to carry out an order, and to end after its guest.
const PATIENCE: Duration = Duration::from_secs(10);

/// Cards, the first two of which are joined by a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cards {
    /// True if several frames share a receive buffer.
    pub(crate) striding: bool,
}

/// The process; it ends with its guest, at the latest when this is dropped.
pub(crate) struct Server {
    child: Child,
    orders: ChildStdin,
    said: Receiver<String>,
    sockets: Vec<PathBuf>,
    log: PathBuf,
    errors: PathBuf,
}

/// A card's report on itself when its guest is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary(pub(crate) String);

/// Returns the program, built first if it has to be, with the layouts of the kernel that is under test.
pub(crate) fn model_program() -> Result<PathBuf> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    tools::once(&BUILT, || {
        let header = kernel::work_tree()?.join(HEADER);
        Step::new("build the ConnectX model", "mlx5-model-build").run(
            // The layouts may differ from those of every other build.
            builds::cargo(FOLDER)?
                .args(["build", "--release", "--locked", "--package", "mlx5-model"])
                .env("MLX5_IFC_H", header),
        )?;
        Ok(paths::project().join(FOLDER).join("release/mlx5-model"))
    })
}

/// Returns the table of layouts that the header of the kernel under test says, and the one that is kept for builds without.
pub(crate) fn layouts() -> Result<[String; 2]> {
    let table = tools::output(
        Command::new(model_program()?)
            .arg("layouts")
            .arg(kernel::work_tree()?.join(HEADER)),
    )?;
    let kept = paths::project().join("tests/mlx5-model/layouts/linux-6.12.txt");
    let kept =
        fs::read_to_string(&kept).with_context(|| format!("cannot read {}", kept.display()))?;
    Ok([table, kept])
}

impl Server {
    /// Starts the process with sockets in `dir`; its commands are written down in a log called after `name`.
    ///
    /// With a socket on which a program listens, there is a third card, which a wire joins to it.
    pub(crate) fn start(
        cards: Cards,
        cpus: u16,
        wire: Option<&Path>,
        dir: &Path,
        name: &str,
    ) -> Result<Self> {
        let program = model_program()?;
        let count = if wire.is_some() { 3 } else { 2 };
        let sockets: Vec<PathBuf> = (0..count)
            .map(|card| dir.join(format!("card{card}")))
            .collect();
        let log = paths::logs()?.join(format!("{name}-cards.log"));
        let errors = paths::logs()?.join(format!("{name}-cards-errors.log"));
        let mut command = Command::new(program);
        command
            .arg("serve")
            .args(&sockets)
            .args(["--compression", "--vectors", &(cpus + 1).to_string()])
            .arg("--journal")
            .arg(&log)
            .args(cards.striding.then_some("--striding"))
            .args(wire.iter().flat_map(|wire| [Path::new("--wire"), wire]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors)?);
        let mut child = command.spawn().context("cannot start the ConnectX model")?;
        let orders = child.stdin.take().context("no standard input")?;
        let said = listen(child.stdout.take().context("no standard output")?);
        let server = Self {
            child,
            orders,
            said,
            sockets,
            log,
            errors,
        };
        let first = server.said.recv_timeout(PATIENCE);
        if first.as_deref() != Ok("ready") {
            bail!(
                "the ConnectX model does not begin; see {}",
                server.errors.display()
            );
        }
        Ok(server)
    }

    /// Adds the cards to QEMU's command line; the guest's memory is shared with them.
    pub(crate) fn attach(&self, memory_mib: u32, command: &mut Command) {
        command.args([
            "-object",
            &format!("memory-backend-memfd,id=ram,size={memory_mib}M,share=on"),
            "-machine",
            "memory-backend=ram",
        ]);
        for socket in &self.sockets {
            let device = serde_json::json!({
                "driver": "vfio-user-pci",
                "socket": { "type": "unix", "path": socket },
            });
            command.args(["-device", &device.to_string()]);
        }
    }

    /// Makes a card receive the frames of a capture this many times.
    pub(crate) fn replay(&mut self, card: usize, times: u64, capture: &[u8]) -> Result<()> {
        // The model reads it before it answers.
        let mut file = NamedTempFile::new()?;
        file.write_all(capture)?;
        self.order(&format!("{card} replay {} {times}", file.path().display()))
    }

    /// Makes something go wrong, such as `0 link down`.
    pub(crate) fn order(&mut self, order: &str) -> Result<()> {
        writeln!(self.orders, "{order}")?;
        let answer = self
            .said
            .recv_timeout(PATIENCE)
            .context("the ConnectX model says nothing")?;
        match answer.strip_prefix("done ") {
            Some(done) => {
                if done != order {
                    println!("  {done}");
                }
                Ok(())
            }
            None => bail!("the ConnectX model refuses {order:?}: {answer}"),
        }
    }

    /// Returns the cards' reports on themselves; to be called when the guest is gone.
    pub(crate) fn summaries(&self) -> Result<Vec<Summary>> {
        (0..self.sockets.len())
            .map(|_| {
                let line = self
                    .said
                    .recv_timeout(PATIENCE)
                    .context("the ConnectX model ended without a word")?;
                let line = line.strip_prefix("end ").unwrap_or(&line).to_owned();
                Ok(Summary(line))
            })
            .collect()
    }

    pub(crate) fn logs(&self) -> [&Path; 2] {
        [&self.log, &self.errors]
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }
}

impl Summary {
    pub(crate) fn figure(&self, name: &str) -> Result<u64> {
        self.0
            .split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .with_context(|| format!("the ConnectX model does not say {name}: {}", self.0))?
            .parse()
            .with_context(|| format!("no number for {name}: {}", self.0))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already, if its guest has.
        let _best_effort = self.child.kill();
        let _best_effort = self.child.wait();
    }
}

fn listen(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_whole_name() {
        let summary = Summary("0 unknown=2 objects=0 sent=15".to_owned());
        assert_eq!(summary.figure("unknown").unwrap(), 2);
        assert_eq!(summary.figure("sent").unwrap(), 15);
        assert!(summary.figure("nown").is_err());
        assert!(summary.figure("received").is_err());
    }
}
