// SPDX-License-Identifier: GPL-2.0

//! A busy softirq: holds one CPU for a good part of a second at a time, so that no NAPI runs there.
//!
//! A packet socket whose filter counts as far as a packet's mark says sits in a namespace of its own. Datagrams sent there on
//! the CPU, many with one system call, pass it twice, with softirqs disabled or running. Priorities would not do: softirqs
//! come before every task.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::machine::{cpu, cpu_absence, threads};
use crate::network::{bpf, netns, topology};

const NAMESPACE: &str = "hog";
/// All protocols, in network byte order as packet sockets want it.
const ALL_PROTOCOLS: i32 = (0x0003_u16).to_be() as i32;
/// The number of steps that the filter counts when its speed is measured.
const SAMPLE_STEPS: u32 = 400;
const SAMPLES: usize = 3;
const CALIBRATIONS: usize = 4;
/// Datagrams that the kernel makes of one; it segments them just before the device, with softirqs disabled.
const DATAGRAMS: usize = 64;
const DATAGRAM_BYTES: i32 = 8;

/// A CPU that is held for so long may seem to be away.
const LONG: Duration = Duration::from_millis(200);

pub(crate) struct Hog {
    stop: Arc<AtomicBool>,
    holds_ended: Arc<AtomicU32>,
    thread: JoinHandle<Result<()>>,
    hold: Duration,
}

impl Hog {
    /// Starts to hold a CPU for about `hold`, again and again with pauses of the same length.
    pub(crate) fn start(cpu: usize, hold: Duration) -> Result<Self> {
        prepare()?;
        if hold >= LONG {
            cpu_absence::provoke();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let holds_ended = Arc::new(AtomicU32::new(0));
        let (thread, hold) = threads::start({
            let stop = Arc::clone(&stop);
            let holds_ended = Arc::clone(&holds_ended);
            move |ready| {
                cpu::pin(cpu)?;
                netns::enter(NAMESPACE)?;
                let load = FilterLoad::of(hold)?;
                let _receiver_gone = ready.send(load.shortest_hold());
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(hold);
                    load.hold_once();
                    holds_ended.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
        })?;
        Ok(Self {
            stop,
            holds_ended,
            thread,
            hold,
        })
    }

    /// Returns the number of times that the CPU has been held from begin to end.
    pub(crate) fn holds_ended(&self) -> u32 {
        self.holds_ended.load(Ordering::Relaxed)
    }

    pub(crate) fn hold(&self) -> Duration {
        self.hold
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        threads::result(self.thread.join())
    }
}

/// Makes the namespace of the datagrams, if there is none.
pub(crate) fn prepare() -> Result<()> {
    if netns::exists(NAMESPACE) {
        return Ok(());
    }
    netns::add(NAMESPACE)?;
    topology::ip_in(NAMESPACE, "link set lo up")?;
    // Else the device would take them in one piece.
    netns::run(NAMESPACE, "ethtool -K lo tx-udp-segmentation off").map(drop)
}

struct FilterLoad {
    _listener: Socket,
    sender: UdpSocket,
}

impl FilterLoad {
    /// Returns a load that takes about as long as asked for on this CPU.
    fn of(hold: Duration) -> Result<Self> {
        let listener = Socket::new(
            Domain::PACKET,
            Type::RAW,
            Some(Protocol::from(ALL_PROTOCOLS)),
        )
        .context("packet socket")?;
        bpf::count_down_marks(&listener)?;
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        setsockopt(&sender, sockopt::UdpGsoSegment, &DATAGRAM_BYTES).context("UDP_SEGMENT")?;
        let load = Self {
            _listener: listener,
            sender,
        };
        let mut steps = SAMPLE_STEPS;
        load.count_to(steps)?;
        // The first one also fills caches.
        load.hold_once();
        let mut held = load.shortest_hold();
        // An emulated CPU that was away during all samples seemed slow: the next ones tell.
        for _ in 0..CALIBRATIONS {
            // CAST: a positive number, and too large a one becomes the largest.
            let wanted = (f64::from(steps) * hold.div_duration_f64(held)) as u32;
            steps = wanted.clamp(1, bpf::MOST_COUNTED);
            load.count_to(steps)?;
            held = load.shortest_hold();
            if held >= hold / 4 {
                return Ok(load);
            }
        }
        bail!(
            "one system call holds the CPU for {} us, needed are {}: filters are too fast here",
            held.as_micros(),
            hold.as_micros()
        )
    }

    fn count_to(&self, steps: u32) -> Result<()> {
        SockRef::from(&self.sender)
            .set_mark(steps)
            .context("SO_MARK")
    }

    /// Returns the shortest of several holds: an emulated CPU that is away meanwhile makes one longer, nothing shorter.
    fn shortest_hold(&self) -> Duration {
        let first = self.hold_once();
        (1..SAMPLES).fold(first, |shortest, _| shortest.min(self.hold_once()))
    }

    fn hold_once(&self) -> Duration {
        let start = Instant::now();
        // The discard port has no listener; the error which that causes comes with the next call.
        let _refused = self.sender.send_to(
            &[0; DATAGRAMS * DATAGRAM_BYTES as usize],
            (Ipv4Addr::LOCALHOST, 9),
        );
        start.elapsed()
    }
}
