// SPDX-License-Identifier: GPL-2.0

//! A busy softirq: holds one CPU for a good part of a second at a time, so that no NAPI runs there.
//!
//! Packet sockets with long filters sit in a namespace of their own. Datagrams sent there on the CPU, many with one system
//! call, pass them all, twice, with softirqs disabled or running. Priorities would not do: softirqs come before every task.

use std::iter;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::{absence, cpu, netns, threads, topology};

const NAMESPACE: &str = "hog";
/// All protocols, in network byte order as packet sockets want it.
const ALL_PROTOCOLS: i32 = (0x0003_u16).to_be() as i32;
const FILTER_STEPS: usize = 4096;
/// Divide what is in the accumulator: the slowest step there is.
const MODULO: u16 = 0x94;
/// Return a constant; 0: the socket does not want the packet.
const RETURN: u16 = 0x06;
const SAMPLES: usize = 3;
/// More would take too long to set up.
const MOST_SOCKETS: usize = 200;
/// Datagrams that the kernel makes of one; it segments them just before the device, with softirqs disabled.
const DATAGRAMS: usize = 64;
const DATAGRAM_BYTES: i32 = 8;

pub(crate) struct Hog {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
    hold: Duration,
}

impl Hog {
    /// Starts to hold a CPU for about `hold`, again and again with pauses of the same length.
    pub(crate) fn start(cpu: usize, hold: Duration) -> Result<Self> {
        netns::add(NAMESPACE)?;
        topology::ip(Some(NAMESPACE), "link set lo up")?;
        // Else the device would take them in one piece.
        netns::run(NAMESPACE, "ethtool -K lo tx-udp-segmentation off")?;
        absence::provoke();
        let stop = Arc::new(AtomicBool::new(false));
        let (thread, hold) = threads::start({
            let stop = Arc::clone(&stop);
            move |ready| {
                cpu::pin(cpu)?;
                netns::enter(NAMESPACE)?;
                let load = FilterLoad::of(hold)?;
                let _receiver_gone = ready.send(load.shortest_hold()?);
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(hold);
                    load.hold_once()?;
                }
                Ok(())
            }
        })?;
        Ok(Self { stop, thread, hold })
    }

    pub(crate) fn hold(&self) -> Duration {
        self.hold
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        threads::result(self.thread.join())
    }
}

struct FilterLoad {
    listeners: Vec<Socket>,
    sender: UdpSocket,
}

impl FilterLoad {
    /// Returns a load that takes about as long as asked for on this CPU.
    fn of(hold: Duration) -> Result<Self> {
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        setsockopt(&sender, sockopt::UdpGsoSegment, &DATAGRAM_BYTES).context("UDP_SEGMENT")?;
        let mut load = Self {
            listeners: Vec::new(),
            sender,
        };
        let sample = 2;
        load.listen(sample)?;
        // The first one also fills caches.
        load.hold_once()?;
        let each = load.shortest_hold()?.as_secs_f64() / sample as f64;
        // CAST: a positive number of sockets.
        let needed = (hold.as_secs_f64() / each) as usize;
        load.listen(needed.min(MOST_SOCKETS).saturating_sub(sample))?;
        let held = load.shortest_hold()?;
        ensure!(
            held >= hold / 4,
            "one system call holds the CPU for {} us, needed are {}: filters are too fast here",
            held.as_micros(),
            hold.as_micros()
        );
        Ok(load)
    }

    /// Returns the shortest of several holds: an emulated CPU that is away meanwhile makes one longer, nothing shorter.
    fn shortest_hold(&self) -> Result<Duration> {
        let mut shortest = self.hold_once()?;
        for _ in 1..SAMPLES {
            shortest = shortest.min(self.hold_once()?);
        }
        Ok(shortest)
    }

    fn listen(&mut self, count: usize) -> Result<()> {
        let step = || SockFilter::new(MODULO, 0, 0, 65_521);
        let mut filter: Vec<SockFilter> = iter::repeat_with(step).take(FILTER_STEPS - 1).collect();
        filter.push(SockFilter::new(RETURN, 0, 0, 0));
        for _ in 0..count {
            let socket = Socket::new(
                Domain::PACKET,
                Type::RAW,
                Some(Protocol::from(ALL_PROTOCOLS)),
            )
            .context("packet socket")?;
            socket.attach_filter(&filter).context("SO_ATTACH_FILTER")?;
            self.listeners.push(socket);
        }
        Ok(())
    }

    fn hold_once(&self) -> Result<Duration> {
        let start = Instant::now();
        // The discard port has no listener; the error which that causes comes with the next call.
        let _refused = self.sender.send_to(
            &[0; DATAGRAMS * DATAGRAM_BYTES as usize],
            (Ipv4Addr::LOCALHOST, 9),
        );
        Ok(start.elapsed())
    }
}
