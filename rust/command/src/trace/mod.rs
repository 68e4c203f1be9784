// SPDX-License-Identifier: GPL-2.0

//! The trace of flows and batches, while they come and go.
//!
//! [`event`] reads what the kernel prints, [`instance`] has it printed, [`known`] knows to which flow a batch belongs. Where tracefs is
//! closed, netlink still tells of flows that begin to be split and stop. No more than a read is kept in memory.

pub mod event;
pub mod instance;
pub mod known;

use std::io::stdout;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::time::{clock_gettime, ClockId};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use self::event::{Event, Line, What};
use self::instance::Instance;
use self::known::{Choice, Known};
use crate::module::changes::Change;
use crate::module::netlink::Netlink;
use crate::module::{self, debugfs, Unreachable};
use crate::output::warn;

/// The time between two looks for events.
const LOOK: Duration = Duration::from_millis(50);
/// The time between two looks at what was lost, and at whether the module is still there.
const CHECK: Duration = Duration::from_secs(1);
/// The time between two looks at signals, while nobody reads what is printed.
const PATIENCE: Duration = Duration::from_millis(200);

/// The source of events.
#[derive(Debug)]
enum Source {
    Instance(Instance),
    Netlink { family: Netlink, lost: u64 },
}

/// Tells of the chosen events until the time is over or a signal comes. `tell` prints one of them.
pub fn run(
    root: &Path,
    choice: &Choice,
    time: Option<Duration>,
    tell: impl FnMut(&Event) -> Result<()>,
) -> Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).context("cannot take signals")?;
    }
    let module = module::open(root)?;
    let load = module::load(root);
    // Nothing that comes after the list is missed.
    let source = Source::begin(root, choice)?;
    let known = Known::of(&module.flows()?.flows);
    let mut trace = Trace {
        choice,
        known,
        ended: &ended,
        told: 0,
        lost: 0,
        tell,
    };
    let end = time.map(|time| Instant::now() + time);
    trace.follow(source, end, || module::load(root) == load)
}

/// A trace under way.
struct Trace<'a, T> {
    choice: &'a Choice,
    known: Known,
    ended: &'a AtomicBool,
    told: u64,
    lost: u64,
    tell: T,
}

impl<T: FnMut(&Event) -> Result<()>> Trace<'_, T> {
    fn has_ended(&self) -> bool {
        // ORDERING: Relaxed: nothing else is handed over.
        self.ended.load(Ordering::Relaxed)
    }

    fn follow(
        &mut self,
        mut source: Source,
        end: Option<Instant>,
        is_loaded: impl Fn() -> bool,
    ) -> Result<()> {
        let mut checked = Instant::now();
        while !self.has_ended() && end.is_none_or(|end| Instant::now() < end) {
            self.take(&mut source, &is_loaded)?;
            if checked.elapsed() >= CHECK {
                checked = Instant::now();
                self.note_lost(&source)?;
                require_loaded(&is_loaded)?;
            }
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
            thread::sleep(left.min(LOOK));
        }
        self.take(&mut source, &is_loaded)?;
        self.note_lost(&source)?;
        let (events, lost) = (self.told, self.lost);
        self.print(&Event::of_none(now_us(), What::End { events, lost }))
    }

    /// Tells of what has come.
    fn take(&mut self, source: &mut Source, is_loaded: &impl Fn() -> bool) -> Result<()> {
        match source {
            Source::Instance(instance) => {
                for line in instance.lines()? {
                    match Line::parse(&line) {
                        Some(Line::Event(event)) => self.note(event)?,
                        Some(Line::Remark) => {}
                        None => {
                            // The kernel forgets what its events mean when the module goes.
                            require_loaded(is_loaded)?;
                            let file = "trace_pipe";
                            return Err(Unreachable::Text { file, line }.into());
                        }
                    }
                }
            }
            Source::Netlink { family, lost } => {
                let told = family.changes()?;
                *lost += u64::from(told.has_overflowed);
                for change in told.changes {
                    *lost += u64::from(change.lost);
                    self.note(event_of(change))?;
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, mut event: Event) -> Result<()> {
        self.known.name(&mut event);
        if !self.choice.has(&event) {
            return Ok(());
        }
        self.print(&event)?;
        self.told += 1;
        Ok(())
    }

    /// Says how many events were lost since it was said last, if any were.
    fn note_lost(&mut self, source: &Source) -> Result<()> {
        let lost = match source {
            Source::Instance(instance) => instance.lost(),
            Source::Netlink { lost, .. } => *lost,
        };
        let events = lost.saturating_sub(self.lost);
        if events == 0 {
            return Ok(());
        }
        self.lost = lost;
        self.print(&Event::of_none(now_us(), What::Lost { events }))
    }

    /// Prints an event, unless a signal comes while nobody reads what was printed before.
    fn print(&mut self, event: &Event) -> Result<()> {
        while !is_read()? {
            if self.has_ended() {
                return Ok(());
            }
        }
        (self.tell)(event)
    }
}

impl Source {
    fn begin(root: &Path, choice: &Choice) -> Result<Self> {
        let closed = match Instance::begin(root, &choice.heard()) {
            Ok(instance) => return Ok(Self::Instance(instance)),
            Err(closed) => closed,
        };
        let tells = choice.kinds.iter().any(|kind| kind.is_of_flows());
        if !closed.is_final() || !tells {
            return Err(closed.into());
        }
        let family = Netlink::open().with_context(|| {
            format!("{closed}, and netlink can't be asked from here: run it in the host's network namespace")
        })?;
        family.listen()?;
        warn(&format!(
            "{closed}: netlink tells of flows that begin to be split and stop, and nothing tells of batches"
        ));
        Ok(Self::Netlink { family, lost: 0 })
    }
}

/// Returns a change that netlink has told of as an event.
fn event_of(change: Change) -> Event {
    let pps = change.pps;
    Event {
        at_us: now_us(),
        cpu: change.cpu,
        slot: None,
        flow: Some(change.flow),
        what: match change.reason {
            None => What::FlowStart { pps },
            Some(reason) => What::stop(pps, reason),
        },
    }
}

/// Fails if the module has gone, or has been loaded again: nothing is told of that one.
fn require_loaded(is_loaded: &impl Fn() -> bool) -> Result<(), Unreachable> {
    if is_loaded() {
        Ok(())
    } else {
        Err(debugfs::not_loaded(Path::new("/")))
    }
}

/// Returns whether a line can be printed without waiting for one who reads.
fn is_read() -> Result<bool> {
    let stdout = stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::OUT)];
    match poll(&mut fds, Some(&Timespec::try_from(PATIENCE)?)) {
        Ok(number) => Ok(number > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error).context("cannot wait for one who reads"),
    }
}

/// Returns the time since the host was started.
fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // CAST: time since the start is not negative.
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::flow_name::FlowName;
    use crate::trace::event::Kind;

    #[test]
    fn a_notification_is_an_event_without_a_slot() {
        let change = Change {
            flow: FlowName {
                device: "eth0".to_owned(),
                queue: None,
                proto: None,
                from: None,
                to: None,
            },
            cpu: Some(1),
            pps: None,
            reason: Some("silent".to_owned()),
            lost: 0,
        };
        let event = event_of(change);
        assert_eq!((event.kind(), event.slot), (Some(Kind::FlowStop), None));
        let says = event.to_string();
        assert!(
            says.ends_with("no packet of it came for a second (silent)"),
            "{says}"
        );
    }
}
