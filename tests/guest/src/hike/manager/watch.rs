// SPDX-License-Identifier: GPL-2.0

//! Clients that watch the configuration: they get each transaction in order, a slow one gets fewer, and all notice a restart of
//! the daemon.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::{ensure, Context as _, Result};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::{json, Value};

use super::daemon::{Daemon, Place};
use crate::hike::network::{Network, INGRESS};
use crate::hike::Case;
use crate::machine::command::{wait_until, START};

/// The number of paths in the large configuration. Each of its transactions has some 250 KB. Sockets and HTTP/2 hold only a few
/// of these between daemon and client while the client does not read.
const PATHS: u32 = 300;
const LARGE_TRANSACTIONS: u32 = 7;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "manager/watch",
        proves: "who watches sees each transaction, in order and whole; who is slow, fewer that lead to the same; who watches again after a restart, all that there is",
        run: |_| watch(),
    }]
}

/// Returns a small configuration with this chain.
fn small(chain: &str) -> String {
    format!(
        "[chains]\nedge = \"{chain}\"\n\n[classes]\n\"2001:db8::/32\" = {{ chain = \"edge\" }}\n"
    )
}

/// Returns a large configuration with this hop limit in each path.
fn large(hop_limit: u32) -> String {
    let sids: Vec<String> = (1..=10)
        .map(|sid| format!("\"fc00:1111:2222:3333:4444:5555:6666:{sid:x}\""))
        .collect();
    let sids = sids.join(", ");
    let paths = (0..PATHS).map(|path| {
        format!(
            "[paths.p{path}]\nsource = \"fd00:1::1\"\nsids = [{sids}]\nhop-limit = {hop_limit}\n"
        )
    });
    small("drop") + &paths.collect::<String>()
}

/// The objects that there are: the text of each, by kind and name.
type There = BTreeMap<(String, String), String>;

/// A process of `hike watch`, and the objects that it has told of.
struct Watcher {
    child: Child,
    lines: Receiver<String>,
    revision: u64,
    there: There,
}

impl Watcher {
    /// Begins to watch, and takes the first message, in which all objects are new.
    fn start(place: &Place) -> Result<Self> {
        let mut child = place.start_hike("--json watch")?;
        let printed = child.stdout.take().context("no output")?;
        let mut watcher = Self {
            lines: lines_of(printed),
            child,
            revision: 0,
            there: There::new(),
        };
        watcher.next()?;
        Ok(watcher)
    }

    /// Waits for the next message, and makes its changes in `there`. Returns its revision and its changes.
    fn next(&mut self) -> Result<(u64, Value)> {
        let line = self.lines.recv_timeout(START);
        let line = line.with_context(|| format!("nothing comes after {}", self.revision))?;
        let message: Value = serde_json::from_str(&line)?;
        let revision = message["revision"].as_u64().context("no revision")?;
        let is_first = self.revision == 0;
        ensure!(
            revision > self.revision,
            "{revision} comes after {}",
            self.revision
        );
        self.revision = revision;
        for change in message["changes"].as_array().context("no changes")? {
            let text = |of: &str| change[of].as_str().map(str::to_owned);
            let key = (
                text("kind").context("no kind")?,
                text("name").context("no name")?,
            );
            let before = self.there.remove(&key);
            ensure!(
                before == text("before"),
                "{key:?} was {before:?}, and it says {change}"
            );
            if let Some(after) = text("after") {
                self.there.insert(key, after);
            }
            ensure!(
                !is_first || text("before").is_none(),
                "there was nothing before {change}"
            );
        }
        Ok((revision, message["changes"].clone()))
    }

    /// Waits for the next message, which has to be this transaction.
    fn sees(&mut self, answer: &Value) -> Result<()> {
        let (revision, changes) = self.next()?;
        ensure!(
            answer["revision"] == revision && answer["changes"] == changes,
            "it says revision {revision}: {changes}, and the one who made it was told {answer}"
        );
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        // CAST: numbers of processes are small.
        Ok(kill(Pid::from_raw(self.child.id() as i32), signal)?)
    }

    /// Waits until `hike watch` ends, and fails unless it has said that the daemon has ended, and nothing else. Returns the
    /// objects that it knew.
    fn ends(mut self) -> Result<There> {
        let mut status = None;
        wait_until("hike watch ends", || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        let mut said = String::new();
        let mut printed = self.child.stderr.take().context("no errors")?;
        printed.read_to_string(&mut said)?;
        let expected = json!({ "error": "hiked has ended, or no longer answers; watch again when it runs, and all that there is comes first" });
        ensure!(
            status.and_then(|status| status.code()) == Some(2)
                && serde_json::from_str::<Value>(&said).ok() == Some(expected),
            "it has ended with {status:?} and said: {said}"
        );
        ensure!(self.lines.try_recv().is_err(), "there is one more message");
        Ok(std::mem::take(&mut self.there))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _already_ended = self.child.wait();
    }
}

/// Returns the lines that a program prints, as they come.
fn lines_of(printed: ChildStdout) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    // It ends with the program.
    thread::spawn(move || {
        let lines = BufReader::new(printed).lines();
        for line in lines.map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Applies a configuration that differs, and returns the answer.
fn apply(daemon: &Daemon<'_>, text: &str) -> Result<Value> {
    let answer = daemon.applied(text)?;
    let changes = answer["changes"].as_array().map_or(0, Vec::len);
    ensure!(changes > 0, "nothing differed: {answer}");
    Ok(answer)
}

fn watch() -> Result<()> {
    let _network = Network::up()?;
    let place = Place::new(INGRESS);
    let daemon = place.start()?;
    apply(&daemon, &small("drop"))?;
    let mut quick = Watcher::start(&place)?;
    ensure!(
        quick.revision == 1,
        "it begins with revision {}",
        quick.revision
    );
    each_in_order(&daemon, &mut quick)?;
    let slow = Watcher::start(&place)?;
    slow_and_quick(&daemon, &mut quick, slow)?;
    restarts(&place, daemon, quick)
}

/// Applies whole files and single objects. A configuration that changes nothing or is refused makes no message.
fn each_in_order(daemon: &Daemon<'_>, watcher: &mut Watcher) -> Result<()> {
    for chain in ["mon-out,drop", "fw-kernel", "drop"] {
        watcher.sees(&apply(daemon, &small(chain))?)?;
        daemon.applied(&small(chain))?;
        daemon.apply_refused(&small("enc"))?;
    }
    for words in [
        "chain add spare fw-kernel",
        "chain replace spare drop",
        "chain remove spare",
    ] {
        watcher.sees(&daemon.ask(words)?)?;
    }
    // They are made as quickly as they can be. No message is missing as long as the watcher keeps up with the buffers in between.
    let answers = ["fw-kernel", "drop", "mon-out,drop", "fw-kernel", "drop"];
    let answers = answers.map(|chain| apply(daemon, &small(chain)));
    for answer in answers {
        let answer = answer?;
        let revision = answer["revision"].as_u64().context("no revision")?;
        let (seen, changes) = watcher.next()?;
        ensure!(
            seen == revision && answer["changes"] == changes,
            "it sees {seen}: {changes}, and not {answer}"
        );
    }
    Ok(())
}

/// Stops one of two watchers. It has to get fewer messages, which lead to the same state, and the other watcher gets all.
fn slow_and_quick(daemon: &Daemon<'_>, quick: &mut Watcher, mut slow: Watcher) -> Result<()> {
    slow.signal(Signal::SIGSTOP)?;
    for number in 1..=LARGE_TRANSACTIONS {
        quick.sees(&apply(daemon, &large(number))?)?;
    }
    slow.signal(Signal::SIGCONT)?;
    let mut messages = 0;
    while slow.revision < quick.revision {
        slow.next()?;
        messages += 1;
    }
    ensure!(
        messages < LARGE_TRANSACTIONS,
        "a client that does not read was sent each of {LARGE_TRANSACTIONS} transactions"
    );
    ensure!(
        slow.revision == quick.revision && slow.there == quick.there,
        "what the slow one knows differs"
    );
    // It goes on like any other.
    let answer = apply(daemon, &small("fw-kernel"))?;
    slow.sees(&answer)?;
    quick.sees(&answer)
}

/// Ends the daemon, which a watcher does not hold up. The watcher learns of it, and the next daemon begins with all objects.
fn restarts(place: &Place, daemon: Daemon<'_>, watcher: Watcher) -> Result<()> {
    let revision = watcher.revision;
    daemon.stop()?;
    let there = watcher.ends()?;
    let daemon = place.start()?;
    let again = Watcher::start(place)?;
    ensure!(
        again.revision == revision && again.there == there,
        "after revision {revision} comes {}, with {:?} in place of {there:?}",
        again.revision,
        again.there
    );
    daemon.kill()?;
    ensure!(again.ends()? == there, "something has changed");
    let daemon = place.start()?;
    let mut again = Watcher::start(place)?;
    ensure!(
        again.revision == revision && again.there == there,
        "after a kill comes revision {}, with {:?}",
        again.revision,
        again.there
    );
    again.sees(&apply(&daemon, &small("drop"))?)?;
    daemon.stop()?;
    again.ends().map(|_| ())
}
