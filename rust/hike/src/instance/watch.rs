// SPDX-License-Identifier: GPL-2.0

//! A thread that moves the epoch where the kernel cannot do that itself: netlink tells it of changes in a network namespace.
//!
//! It says again and again until when it watches. If it stands still or ends, packets do not trust the cache any more 50 ms later. That
//! moment counts from before it has looked whether there is news, so a thread that has stood still in between has not watched.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use aya::maps::{HashMap, MapData};
use aya::programs::{TestRun as _, TestRunOptions, Xdp};
use aya::Ebpf;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::{loader, tracing};
use crate::host::namespace;
use crate::layout::{bytes, Neighbour, NeighbourKey};
use crate::limits::NEIGHBOURS;
use crate::maps::{is_not_there, is_there, open, NEW};
use crate::routing::runs_behind_functions;
use crate::tables::epoch::Epoch;
use crate::tables::packets;

/// The time for which packets trust what was said last.
const LEASE: Duration = Duration::from_millis(50);
/// The time after which it is said again.
const BEAT: Duration = Duration::from_millis(15);
/// The time after which another socket is tried when one has failed.
const AGAIN: Duration = Duration::from_secs(1);
/// The time limit for the kernel's list of neighbours.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of one read, and reads in a row.
const READ_BYTES: usize = 64 << 10;
const MOST_READS: usize = 1_000;
/// The room for messages that wait.
const WAITING_BYTES: usize = 4 << 20;
/// Neighbours that are remembered here; all are forgotten if there are more.
const MOST_KNOWN: usize = 16 * NEIGHBOURS;

/// The kernel's numbers of the groups (`linux/rtnetlink.h`): links, neighbours, and of IPv4 and IPv6 addresses, routes, rules and
/// settings of devices; next hops.
const GROUPS: [u32; 11] = [1, 3, 5, 9, 7, 11, 8, 19, 24, 25, 32];

/// The kernel's `NUD_STALE` and `NUD_VALID` (`net/neighbour.h`).
const STALE: u16 = 0x04;
const VALID: u16 = 0xde;

/// A thread that watches, until this goes.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches for the instance in a folder, in the calling thread's network namespace. Without an epoch, or where the kernel itself
    /// watches, there is nothing to do but to note its neighbours once.
    pub(crate) fn begin(folder: &Path) -> Result<Option<Self>> {
        if !Epoch::is_in(folder) {
            return Ok(None);
        }
        if tracing::stays(folder) {
            note_neighbours(folder)?;
            Epoch::open(folder)?.trust_kernel(runs_behind_functions());
            return Ok(None);
        }
        Self::listen(folder).map(Some)
    }

    /// Begins to listen.
    pub(crate) fn listen(folder: &Path) -> Result<Self> {
        let mut watcher = Watcher::open(folder)?;
        // Else the first packets would find next hops of which nobody has told yet.
        note_neighbours(folder)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        // A new thread is in the network namespace of the one that has made it.
        let thread = thread::Builder::new()
            .name("hike-watch".to_owned())
            .spawn(move || watcher.run(&stopped))
            .context("cannot start a thread")?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // ORDERING: Nothing else depends on it.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// Notes the neighbours of the calling thread's network namespace of which nothing is known: from then on, the kernel tells of them.
pub(crate) fn note_neighbours(folder: &Path) -> Result<()> {
    let begin = Instant::now();
    note_those_of(folder, namespace()?)?;
    let mut news = News::open(folder, 0)?;
    news.read()?;
    while !news.has_all {
        ensure!(
            begin.elapsed() < PATIENCE,
            "the kernel does not list its neighbours"
        );
        comes(&news.socket, BEAT)?;
        news.read()?;
    }
    Ok(())
}

/// Says whose neighbours are noted from now on. Devices are known by numbers, which others have elsewhere: so those of another network
/// namespace are forgotten, and nobody trusts the cache until somebody watches in this one.
fn note_those_of(folder: &Path, namespace: u64) -> Result<()> {
    let epoch = Epoch::open(folder)?;
    let before = epoch.network();
    if before == namespace {
        return Ok(());
    }
    epoch.watch_until(0);
    epoch.note_neighbours_of(0);
    if before != 0 && packets::wait().is_err() {
        // A program that notes one takes no time of this kind.
        thread::sleep(BEAT);
    }
    let mut table: HashMap<MapData, NeighbourKey, Neighbour> =
        open(folder, "neighbours")?.try_into()?;
    let keys: Vec<_> = table.keys().take(2 * NEIGHBOURS).collect();
    for key in keys {
        match table.remove(&key?) {
            Err(error) if !is_not_there(&error) => return Err(error.into()),
            _ => {}
        }
    }
    epoch.note_neighbours_of(namespace);
    Ok(())
}

/// Waits until a message comes, or a signal, or this time has passed; returns whether it has not.
fn comes(socket: &Socket, time: Duration) -> Result<bool> {
    let time = Timespec::try_from(time)?;
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

struct Watcher {
    folder: PathBuf,
    epoch: Epoch,
    clock: Ebpf,
    news: News,
    /// The jiffies of a lease.
    lease: u64,
    /// The end of the last one.
    until: u64,
    /// True if there was news the last time: some of it comes before the change that it tells of.
    again: bool,
}

impl Watcher {
    fn open(folder: &Path) -> Result<Self> {
        note_those_of(folder, namespace()?)?;
        let mut watcher = Self {
            folder: folder.to_owned(),
            epoch: Epoch::open(folder)?,
            clock: loader::clock(folder)?,
            news: News::open(folder, groups())?,
            lease: loader::hz() * u64::try_from(LEASE.as_millis())? / 1_000,
            until: 0,
            again: false,
        };
        watcher.now()?;
        Ok(watcher)
    }

    fn run(&mut self, stop: &AtomicBool) {
        // ORDERING: Nothing else depends on it.
        while !stop.load(Ordering::Relaxed) {
            if self.beat().is_ok() {
                continue;
            }
            // Meanwhile, packets take their chains.
            thread::sleep(AGAIN);
            if let Ok(news) = News::open(&self.folder, groups()) {
                self.news = news;
            }
        }
    }

    fn beat(&mut self) -> Result<()> {
        let now = self.now()?;
        let read = self.news.read()?;
        let is_news = read.is_news || !read.is_all;
        // Nobody has watched behind the end of the last lease.
        if is_news || self.again || now >= self.until {
            self.epoch.moves();
        }
        self.again = is_news;
        if read.is_all {
            self.until = now + self.lease;
            self.epoch.watch_until(self.until);
        }
        comes(&self.news.socket, BEAT).map(drop)
    }

    /// Returns the kernel's jiffies.
    fn now(&mut self) -> Result<u64> {
        let clock: &mut Xdp =
            loader::program(&mut self.clock, loader::CLOCK_PROGRAM)?.try_into()?;
        // The shortest frame that the kernel takes.
        clock.test_run(TestRunOptions {
            data_in: Some(&[0; 14]),
            ..TestRunOptions::default()
        })?;
        Ok(self.epoch.clock())
    }
}

fn groups() -> u32 {
    GROUPS
        .iter()
        .fold(0, |groups, group| groups | 1 << (group - 1))
}

/// The result of a look at the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Read {
    /// True if something has changed.
    is_news: bool,
    /// True if no message waits any more.
    is_all: bool,
}

/// The kernel's messages, and the neighbours that it has told of.
struct News {
    socket: Socket,
    table: HashMap<MapData, NeighbourKey, Neighbour>,
    known: BTreeMap<NeighbourKey, Neighbour>,
    /// True if the kernel has listed all of its neighbours.
    has_all: bool,
    /// True if it has to be asked for them, and when it was asked last.
    asks: bool,
    asked: Option<Instant>,
    /// True if only those are noted of which nothing is known.
    only_new: bool,
}

impl News {
    /// Opens a socket for messages of these groups.
    fn open(folder: &Path, groups: u32) -> Result<Self> {
        let opened = socket(groups).context("cannot listen to the kernel's messages");
        Ok(Self {
            socket: opened?,
            table: open(folder, "neighbours")?.try_into()?,
            known: BTreeMap::new(),
            has_all: false,
            asks: true,
            asked: None,
            only_new: groups == 0,
        })
    }

    fn ask_for_neighbours(&self) -> Result<()> {
        let list = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let mut request = NetlinkMessage::from(list);
        request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        let sent = self.socket.send(&bytes, 0);
        sent.context("cannot ask for the neighbours")?;
        Ok(())
    }

    /// Reads the messages that wait.
    fn read(&mut self) -> Result<Read> {
        // A kernel that is not ready for that says so at once.
        let is_time = self.asked.is_none_or(|asked| asked.elapsed() >= BEAT);
        if self.asks && is_time {
            self.ask_for_neighbours()?;
            self.asks = false;
            self.asked = Some(Instant::now());
        }
        let mut is_news = false;
        for _ in 0..MOST_READS {
            let mut read = Vec::with_capacity(READ_BYTES);
            match self.socket.recv(&mut read, 0) {
                Ok(_) => is_news |= self.take(&read)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let is_all = true;
                    return Ok(Read { is_news, is_all });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Messages were lost.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    is_news = true;
                    self.known.clear();
                    self.asks = true;
                }
                Err(error) => return Err(error).context("cannot read the kernel's messages"),
            }
        }
        let is_all = false;
        Ok(Read { is_news, is_all })
    }

    /// Takes the messages of one read; returns whether something has changed.
    fn take(&mut self, mut bytes: &[u8]) -> Result<bool> {
        let mut is_news = false;
        while !bytes.is_empty() {
            // What cannot be read has changed something.
            let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) else {
                return Ok(true);
            };
            let whole = usize::try_from(message.header.length)?.next_multiple_of(4);
            bytes = bytes.get(whole.max(4)..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::Done(_) => self.has_all = true,
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(neighbour)) => {
                    is_news |= self.neighbour(&neighbour, false)?;
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelNeighbour(neighbour)) => {
                    is_news |= self.neighbour(&neighbour, true)?;
                }
                NetlinkPayload::Noop => {}
                // As where it lists them still, and has been asked again.
                NetlinkPayload::Error(_) => self.asks = true,
                _ => is_news = true,
            }
        }
        Ok(is_news)
    }

    /// Notes what a neighbour is now; returns whether another address is used than before, or none.
    fn neighbour(&mut self, message: &NeighbourMessage, is_gone: bool) -> Result<bool> {
        let Some((key, now)) = neighbour(message) else {
            return Ok(false);
        };
        if self.only_new {
            // What the kernel has told is newer.
            return match self.table.insert(key, now, NEW) {
                Err(error) if !is_there(&error) => Err(error.into()),
                _ => Ok(false),
            };
        }
        if is_gone {
            if let Err(error) = self.table.remove(&key) {
                if !is_not_there(&error) {
                    return Err(error.into());
                }
            }
            return Ok(self.known.remove(&key).is_some());
        }
        let asked = self.table.get(&key, 0).map_or(0, |known| known.asked);
        self.table.insert(key, Neighbour { asked, ..now }, 0)?;
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        Ok(match self.known.insert(key, now) {
            Some(before) => (before.mac, before.is_valid) != (now.mac, now.is_valid),
            None => now.is_valid == 1 || now.mac != [0; 8],
        })
    }
}

fn socket(groups: u32) -> Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.set_rx_buf_sz(i32::try_from(WAITING_BYTES)?)?;
    socket.bind(&SocketAddr::new(0, groups))?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// Returns the key and the state of a neighbour of IPv4 or IPv6.
fn neighbour(message: &NeighbourMessage) -> Option<(NeighbourKey, Neighbour)> {
    let mut address = None;
    let mut mac = [0; 8];
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(to)) => {
                address = Some(IpAddr::V4(*to));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(to)) => {
                address = Some(IpAddr::V6(*to));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) if bytes.len() == 6 => {
                mac[..6].copy_from_slice(bytes);
            }
            _ => {}
        }
    }
    let address = address?;
    let key = NeighbourKey {
        device: message.header.ifindex,
        version: if address.is_ipv4() { 4 } else { 6 },
        address: bytes(address),
    };
    let state = u16::from(message.header.state);
    let now = Neighbour {
        asked: 0,
        mac,
        is_valid: u32::from(state & VALID != 0),
        is_stale: u32::from(state & STALE != 0),
    };
    Some((key, now))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use netlink_packet_route::neighbour::NeighbourState;

    use super::*;

    #[test]
    fn each_group_has_a_bit() {
        assert_eq!(groups().count_ones() as usize, GROUPS.len());
    }

    #[test]
    fn neighbours_are_known_by_device_and_address() {
        let mut message = NeighbourMessage::default();
        assert_eq!(neighbour(&message), None);
        message.header.ifindex = 7;
        message.header.state = NeighbourState::Stale;
        let to = NeighbourAddress::Inet(Ipv4Addr::new(10, 0, 0, 9));
        message.attributes = vec![
            NeighbourAttribute::Destination(to),
            NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 1]),
        ];
        let (key, now) = neighbour(&message).expect("of IPv4");
        assert_eq!((key.device, key.version), (7, 4));
        assert_eq!(key.address[..5], [10, 0, 0, 9, 0]);
        assert_eq!((now.is_valid, now.is_stale), (1, 1));
        assert_eq!(now.mac, [2, 0, 0, 0, 0, 1, 0, 0]);
        for (state, valid) in [
            (NeighbourState::Permanent, 1),
            (NeighbourState::Reachable, 1),
            (NeighbourState::Failed, 0),
            (NeighbourState::Incomplete, 0),
            (NeighbourState::None, 0),
        ] {
            message.header.state = state;
            let (_, now) = neighbour(&message).expect("of IPv4");
            assert_eq!((now.is_valid, now.is_stale), (valid, 0), "{state:?}");
        }
    }
}
