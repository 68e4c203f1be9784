// SPDX-License-Identifier: GPL-2.0

//! Attaches cards to a virtual machine: QEMU's `vfio-user-pci` devices connect to sockets that are served here.
//!
//! The protocol is the published `vfio_user` crate's. One thread for each socket carries out what the guest does to
//! registers, and never waits for anything else; another one moves frames ([`engine`]).

mod engine;
mod memory;
mod pci;
mod source;
mod stdin_orders;
mod stream_socket;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{ensure, Context as _, Result};
use vfio_bindings::bindings::vfio::{
    vfio_region_info, VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

use self::engine::Engine;
use self::memory::Guest;
use self::pci::Space;
use self::source::Source;
use self::stream_socket::Outside;
use crate::datapath::port::Traffic;
use crate::firmware::registers::REGION_BYTES;
use crate::host::device::{Config, Device, Done};

/// The status of a process that has panicked.
const DIED: i32 = 101;

/// The server's options on its command line.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Sockets that QEMU connects to: one for each card
    #[arg(required = true)]
    pub sockets: Vec<PathBuf>,
    /// Interrupts of each card: one, and one more for each channel
    #[arg(long, default_value_t = 17, value_parser = clap::value_parser!(u16).range(2..=129))]
    pub vectors: u16,
    /// Offer receive buffers that several frames share (striding receive queues)
    #[arg(long)]
    pub striding: bool,
    /// Offer compressed completions
    #[arg(long)]
    pub compression: bool,
    /// Report success for commands that are not known
    #[arg(long)]
    pub lenient: bool,
    /// Drop frames that find no receive buffer at once, instead of holding up the wire
    #[arg(long)]
    pub lossy: bool,
    /// Join the last card, which no other may be joined to, with the program that listens here
    ///
    /// On this stream socket, each frame has its length in front of it: 32 bits, big-endian, as with QEMU's `-netdev stream`.
    #[arg(long, value_name = "SOCKET")]
    pub wire: Option<PathBuf>,
    /// Write all commands down here
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
}

pub(crate) struct Slot {
    pub(crate) device: Device,
    pub(crate) guest: Guest,
}

/// A slot, as threads share it.
pub(crate) type Shared = Arc<Mutex<Slot>>;

/// Ends the process if the thread that holds it panics: a card that no longer answers would hang the machine without a reason
/// that anyone could see.
pub(crate) struct LastBreath;

impl Drop for LastBreath {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::exit(DIED);
        }
    }
}

/// Locks a slot; a thread that died there has ended the process.
pub(crate) fn lock(slot: &Shared) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The summary of a card's work, made when the machine lets go of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Commands that the model does not know.
    pub unknown_commands: u64,
    /// Objects that drivers left behind, or that are still there.
    pub objects: usize,
    /// Events and completions that found no room.
    pub lost: u64,
    /// Frames sent.
    pub sent: Traffic,
    /// Frames received.
    pub received: Traffic,
}

/// Serves cards until the machine has let go of all of them.
///
/// Calls `ready` once QEMU may connect.
pub fn serve(options: &Options, ready: impl FnOnce()) -> Result<Vec<Summary>> {
    ensure!(
        options.wire.is_none() || options.sockets.len() % 2 == 1,
        "a wire to the outside needs a card that no other is joined to: an odd number of cards"
    );
    let mut slots = Vec::new();
    let mut servers = Vec::new();
    for (index, socket) in options.sockets.iter().enumerate() {
        let vectors = options.vectors;
        let mut config = Config {
            vectors,
            striding: options.striding,
            compression: options.compression,
            strict: !options.lenient,
            ..Config::default()
        };
        // CAST: there are few cards; each has an address of its own.
        config.mac[5] = config.mac[5].wrapping_add(index as u8);
        let mut device = Device::new(config);
        if options.journal.is_some() {
            device.keep_journal();
        }
        let slot: Shared = Arc::new(Mutex::new(Slot {
            device,
            guest: Guest::new(vectors),
        }));
        let server = Server::new(socket, true, interrupts(vectors), regions())
            .map_err(|error| anyhow::anyhow!("cannot serve {}: {error}", socket.display()))?;
        servers.push((
            server,
            Backend {
                card: index,
                slot: slot.clone(),
                space: Space::new(vectors),
                vectors,
                engine: None,
                journal: None,
            },
        ));
        slots.push(slot);
    }
    let journal = options.journal.as_deref().map(create_journal).transpose()?;
    let source = Arc::new(Source::default());
    let outside = options.wire.as_deref().map(Outside::connect).transpose()?;
    let engine = Engine::start(&slots, options.lossy, source.clone(), outside);
    stdin_orders::listen(slots.clone(), source, engine.clone());
    ready();
    let threads: Vec<_> = servers
        .into_iter()
        .map(|(server, mut backend)| {
            backend.engine = Some(engine.clone());
            backend.journal = journal.clone();
            thread::spawn(move || {
                let _ends_process = LastBreath;
                server
                    .run(&mut backend)
                    .map_err(|error| anyhow::anyhow!("vfio-user: {error}"))
            })
        })
        .collect();
    for thread in threads {
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("a thread died"))??;
    }
    Ok(slots.iter().map(|slot| lock(slot).summary()).collect())
}

fn create_journal(path: &Path) -> Result<Arc<Mutex<File>>> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Arc::new(Mutex::new(file)))
}

impl Slot {
    fn summary(&self) -> Summary {
        let (sent, received) = self.device.traffic();
        Summary {
            unknown_commands: self.device.unknown_commands(),
            objects: self.device.left_behind() + self.device.objects(),
            lost: self.device.lost(),
            sent,
            received,
        }
    }
}

fn interrupts(vectors: u16) -> Vec<IrqInfo> {
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| {
            let msix = index == VFIO_PCI_MSIX_IRQ_INDEX;
            IrqInfo {
                index,
                flags: if msix { VFIO_IRQ_INFO_EVENTFD } else { 0 },
                count: if msix { u32::from(vectors) } else { 0 },
            }
        })
        .collect()
}

fn regions() -> Vec<ServerRegion> {
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let size = match index {
                VFIO_PCI_BAR0_REGION_INDEX => REGION_BYTES,
                VFIO_PCI_CONFIG_REGION_INDEX => pci::BYTES as u64,
                _ => 0,
            };
            let flags = if size > 0 {
                VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE
            } else {
                0
            };
            ServerRegion {
                region_info: vfio_region_info {
                    // CAST: some tens of bytes.
                    argsz: size_of::<vfio_region_info>() as u32,
                    flags,
                    index,
                    cap_offset: 0,
                    size,
                    offset: 0,
                },
                sparse_areas: Vec::new(),
                mmap_fd: None,
            }
        })
        .collect()
}

/// One card's end of the protocol.
struct Backend {
    card: usize,
    slot: Shared,
    space: Space,
    vectors: u16,
    engine: Option<Arc<Engine>>,
    journal: Option<Arc<Mutex<File>>>,
}

impl Backend {
    fn wake(&self) {
        if let Some(engine) = &self.engine {
            engine.wake();
        }
    }

    fn write_journal(&self, done: &[Done]) -> io::Result<()> {
        let Some(journal) = self.journal.as_ref().filter(|_| !done.is_empty()) else {
            return Ok(());
        };
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        done.iter()
            .try_for_each(|done| crate::host::journal::write(&mut *journal, self.card, done))
    }
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.space.read(offset, data),
            VFIO_PCI_BAR0_REGION_INDEX => lock(&self.slot).device.read(offset, data),
            _ => data.fill(0),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.space.write(offset, data),
            VFIO_PCI_BAR0_REGION_INDEX => {
                let mut slot = lock(&self.slot);
                let Slot { device, guest } = &mut *slot;
                device.write(guest, offset, data);
                let work = device.wants_to_transmit();
                let done = device.take_journal();
                drop(slot);
                if work {
                    self.wake();
                }
                self.write_journal(&done)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        _: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        lock(&self.slot)
            .guest
            .map(address, size, file, offset)
            .map_err(io::Error::other)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        let (address, size) = if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            (0, u64::MAX)
        } else {
            (address, size)
        };
        lock(&self.slot).guest.unmap(address, size);
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.space = Space::new(self.vectors);
        let mut slot = lock(&self.slot);
        slot.device.reset();
        slot.guest.forget_pending();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        files: Vec<File>,
    ) -> io::Result<()> {
        if index == VFIO_PCI_MSIX_IRQ_INDEX {
            let guest = &mut lock(&self.slot).guest;
            if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
                guest.set_interrupts(start as usize, files);
            } else if count == 0 {
                guest.clear_interrupts();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_has_one_wire() {
        let sockets = ["card0", "card1"].map(|name| std::env::temp_dir().join(name));
        let options = Options {
            sockets: sockets.to_vec(),
            vectors: 2,
            striding: false,
            compression: false,
            lenient: false,
            lossy: false,
            wire: Some(PathBuf::from("/no such socket")),
            journal: None,
        };
        let error = serve(&options, || {}).expect_err("no good order");
        assert!(error.to_string().contains("an odd number"), "{error:#}");
    }
}
