// SPDX-License-Identifier: GPL-2.0

//! One run of TCP streams: writers and readers, and what the two know together. Its part after the mark ends with the last
//! byte read, and TCP's counters are of the whole run.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{ensure, Result};

use super::read_style::ReadStyle;
use super::readers::Readers;
use super::verifier::ReadProgress;
use super::writers::{WriteStyle, Writers};
use crate::mflow;
use crate::network::topology;
use crate::traffic::outcome::Outcome;
use crate::traffic::scale::Scale;
use crate::traffic::tcp_counters::{noise, Counters};
use crate::traffic::{Live, Load, Mark, Plan};

pub(crate) const PORT: u16 = 5101;
/// Payload of a segment, roughly; less than what it really is.
const SEGMENT_BYTES: u64 = 1_300;

/// Byte streams, each over a TCP connection of its own.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    /// Bytes to send after the mark, over all flows.
    pub(crate) bytes: u64,
    pub(crate) write_style: WriteStyle,
    pub(crate) read_style: ReadStyle,
    /// The number that the client adds to the port of the server, if the packets are translated on the way.
    pub(crate) port_shift: u16,
    /// True if both ends wait for long before they send anything again without being asked to.
    pub(crate) patient: bool,
}

impl Plan<Streams> {
    /// Returns the servers' addresses, with ports that are `shift` above those where they listen.
    fn addresses(&self, shift: u16) -> Vec<SocketAddr> {
        let container = self.inner.container();
        (0..self.flows)
            .map(|flow| (container, PORT + shift + flow).into())
            .collect()
    }
}

pub(crate) struct LiveStreams {
    writers: Writers,
    readers: Readers,
    progress: Arc<ReadProgress>,
    outer_flows: u16,
}

impl Live for LiveStreams {
    fn progress(&self) -> u64 {
        self.progress.bytes()
    }

    fn arrivals(&self) -> u64 {
        self.progress.bytes()
    }

    fn ended(&self) -> bool {
        self.writers.ended()
    }

    fn outer_flows(&self) -> u16 {
        self.outer_flows
    }
}

impl LiveStreams {
    /// Warms up, and has the streams end when enough has been written; returns the mark and the NIC's packets before it.
    fn run(
        &mut self,
        plan: &Plan<Streams>,
        split_before: u64,
        during: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<(Mark, u64)> {
        self.warm_up(plan.split, split_before)?;
        self.progress.mark();
        let nic_pkts = topology::received_pkts("eth0")?;
        let mark = Mark::set()?;
        let before = self.writers.written();

        during(self)?;

        let bytes = (before + plan.load.bytes).div_ceil(u64::from(plan.flows));
        self.writers.stop_at(bytes);
        Ok((mark, nic_pkts))
    }
}

impl Load for Streams {
    type Live = LiveStreams;
    const GROUP: &'static str = "tcp/";
    const FLOW: &'static str = "stream";
    const UNNOTICED: &'static str = ", and TCP does not notice";

    fn plainest(scale: &Scale, _frames_per_s: f64) -> Self {
        Self {
            bytes: scale.tcp_bytes,
            write_style: WriteStyle::Write,
            read_style: ReadStyle::Blocking,
            port_shift: 0,
            patient: true,
        }
    }

    fn main(self, scale: &Scale) -> Self {
        Self {
            bytes: scale.tcp_main_bytes,
            ..self
        }
    }

    fn send_at_least(&mut self, pkts: u64) {
        self.bytes = self.bytes.max(pkts * SEGMENT_BYTES);
    }

    fn prepare_ends(&self) -> Result<()> {
        if self.patient {
            topology::patient_tcp()?;
        }
        Ok(())
    }

    fn measure(
        plan: &Plan<Self>,
        during: impl FnOnce(&mut LiveStreams) -> Result<()>,
    ) -> Result<Outcome> {
        let split_before = mflow::flows_split()?;
        let counters = Counters::read()?;
        let readers = Readers::start(plan.addresses(0), plan.load.read_style)?;
        let mut live = LiveStreams {
            progress: readers.progress(),
            readers,
            writers: Writers::start(plan.addresses(plan.load.port_shift), plan.load.write_style),
            outer_flows: plan.outer_flows(),
        };
        let mark = live.run(plan, split_before, during);
        if mark.is_err() {
            // No thread may outlive the run.
            live.writers.stop_at(0);
        }
        let written = live.writers.join();
        let read = live.readers.join();
        // The readers see first what goes wrong with a stream; the others notice that it has ended.
        let (read, (mark, nic_pkts), written) = (read?, mark?, written?);
        ensure!(
            read == written,
            "{written} bytes were written, and {read} read"
        );
        let seconds = mark.time.elapsed().as_secs_f64();
        let frames = topology::received_pkts("eth0")?.saturating_sub(nic_pkts);
        let tcp = Counters::read()?.since(&counters);
        Ok(Outcome {
            sent: frames,
            delivered: frames,
            lost: noise(&tcp, "RetransSegs"),
            reordered: noise(&tcp, "TCPOFOQueue"),
            // CAST: packets per second.
            offered_per_s: (frames as f64 / seconds.max(1e-3)) as u64,
            frames,
            longest_stall_us: live.progress.longest_stall_ns() / 1000,
            stream_bytes: read,
            tcp,
            ..mark.outcome()?
        })
    }

    /// Accepts every outcome: a byte that is lost, doubled or damaged is known when the run has been measured.
    fn require_whole(_: &Outcome) -> Result<()> {
        Ok(())
    }

    fn require_order(outcome: &Outcome) -> Result<()> {
        outcome.require_quiet_tcp()
    }
}
