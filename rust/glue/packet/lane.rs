// SPDX-License-Identifier: GPL-2.0

//! A lane: the consuming end of a ring, polled by a NAPI on the lane's CPU. It receives packets as a driver's NAPI does.
//!
//! With our patches GRO and the whole stack up to the merge point run inside [`Lane::poll`]. So all packets before the end of a
//! batch have been carried to their end when the lane meets it: the batch is complete. On an unpatched kernel they go through queues
//! of the lane's CPU. The lane takes nothing else from its ring until they have left these, and the batch is complete then
//! (`end_settled`).
//!
//! A lane may have a second CPU, which builds the packets that this one carries (`build_cpu.rs`). The kernel's NAPIs call a lane
//! by `lane_entry.rs`.

use super::build_cpu::BuildCpu;
use super::lane_progress::LaneProgress;
use super::pool::{self, Slots};
use super::{merge_sink, runs};
use crate::algo::counters::{Counter, Counters};
use crate::algo::join::{Alone, DatagramForm, NR_ALONE};
use crate::algo::knobs::LaneCpus;
use crate::algo::lanes::carried_batches::CarriedBatches;
use crate::algo::lanes::gro_trial::GroTrial;
use crate::algo::lanes::queue::ring::{Consumer, Item, Producer, RequestPlaces, Ring, RING_ITEMS};
use crate::algo::lanes::queue::Packet as _;
use crate::algo::lanes::ring_bytes::MAX_CPU_RING_BYTES;
use crate::algo::limits::MAX_SLOTS;
use crate::algo::merge::lane_run::Collector;
use crate::algo::merge::slot::LaneId;
use crate::algo::stage::Stage;
use crate::algo::tag::Tag;
use crate::glue::stack::device::{LaneDevice, Watch};
use crate::glue::stack::joiner::{JoinResult, Joiner};
use crate::glue::stack::request::Request;
use crate::glue::stack::skb::SkBuff;
use crate::glue::stack::socket::Socket;
use crate::glue::stack::way;
use crate::glue::stack::worker::{Polling, Work, Worker};
use crate::glue::{ffi, runtime};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::num::NonZeroU32;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use kernel::init::{self, Zeroable};
use kernel::prelude::*;

/// With more items than this in its ring, a lane leaves checksums of datagrams in fragments to their readers.
// CAST: a small constant.
const BUSY_ITEMS: u32 = RING_ITEMS as u32 / 8;

/// The kind of packets that a lane's ring holds.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Carries {
    /// Batches of split flows.
    Batches = 0,
    /// Flows on their way to the next stage (`algo/stage.rs`).
    Stage = 1,
    /// Packets that wait until the stages are empty, to take the ordinary path again.
    Held = 2,
}

/// The packet that a request has become.
enum RequestResult {
    /// A packet of its own, for GRO.
    Packet(SkBuff),
    /// A part of a packet with this tag, which GRO holds.
    Joined(Tag),
    /// None: the driver has dropped the frame, and counted that.
    Dropped,
}

/// Memory for the requests of one lane.
pub(crate) type Places = VBox<RequestPlaces<SkBuff>>;

// SAFETY: Places of zeros are empty, as requests are.
unsafe impl Zeroable for RequestPlaces<SkBuff> {}

/// The number of budgets of held packets that one poll carries. A poll of the NIC brings one budget, so the ring at home gets
/// empty.
const HELD_BUDGETS: u32 = 4;

static LANES_STARTED: AtomicU32 = AtomicU32::new(0);

/// One lane of one source. Its address stays the same from [`Lane::start`] to [`Lane::stop`].
///
/// Its cells but `places` are used by its NAPI alone, which runs on one CPU at a time, and never borrowed while the stack is called.
/// Functions whose contract is "in the poll" are called from [`Lane::poll`], directly or through the stack.
pub struct Lane {
    // Dropped before its places.
    ring: Ring<SkBuff>,
    // Written once, by the thread that gives them to the ring.
    places: UnsafeCell<Option<Places>>,
    consumer: UnsafeCell<Option<Consumer<SkBuff>>>,
    collector: UnsafeCell<Collector<SkBuff>>,
    gro: UnsafeCell<GroTrial>,
    batches: UnsafeCell<CarriedBatches>,
    joiner: UnsafeCell<Joiner>,
    // Bit `n`: this lane has to merge slot `n` when the call of the stack has returned.
    owes_merge: UnsafeCell<u64>,
    // The tag of the batch that has ended while the stack's queues may still hold its packets, or no tag.
    settling: UnsafeCell<Tag>,
    worker: Worker,
    build_cpu: BuildCpu,
    cpu: u32,
    id: LaneId,
    carries: Carries,
    // None if it carries packets of several devices, or of none.
    device: Option<LaneDevice>,
    // True if the CPU of this stage is gone, and another CPU may poll it.
    is_displaced: AtomicBool,
    // A mark in the ring, for a thread that waits until it has been passed.
    mark: AtomicU32,
    /// Packets carried; written by the lane's NAPI.
    pub(crate) counters: Counters,
}

// SAFETY: Zeros are an empty ring, no places for it and no consumer (null pointers), an empty collector (null pointers, no tag), a
// trial, batches and a joiner that know nothing, zeros, no tag, a worker that is not started, nothing that builds,
// `Carries::Batches`, no device (an `Option` of nothing but a pointer is `None` as zeros), false, and counters of zero.
unsafe impl Zeroable for Lane {}
// SAFETY: The cells are used by the NAPI alone, or by the thread that gives places; the rest may be shared.
unsafe impl Sync for Lane {}
// SAFETY: A lane belongs to no thread: its NAPI runs wherever it is scheduled.
unsafe impl Send for Lane {}

impl Lane {
    /// Starts a lane on `cpus`, for packets of this device and of the NAPI with this number, and returns it with the producing end of
    /// its ring. Process context.
    ///
    /// # Safety: the lane is stopped before it is dropped and before the device goes, and the producer is not used after that.
    pub(crate) unsafe fn start(
        cpus: LaneCpus,
        carries: Carries,
        device: Option<LaneDevice>,
        number: Option<NonZeroU32>,
    ) -> Result<(VBox<Lane>, Producer<SkBuff>)> {
        // By pages: kmalloc() rounds up to a power of two, and the ring alone has one.
        let mut lane: VBox<Lane> = VBox::init(init::zeroed(), GFP_KERNEL)?;
        lane.cpu = cpus.carries;
        lane.carries = carries;
        lane.device = device;
        // ORDERING: Relaxed: unique enough. Never `INLINE` or `ORDINARY_PATH`.
        lane.id = LANES_STARTED.fetch_add(1, Ordering::Relaxed) | 1 << 31;
        let address: *mut c_void = ptr::from_mut(&mut *lane).cast();
        let ring = NonNull::from(&lane.ring);
        let (producer, consumer) = match cpus.builds {
            // SAFETY: The ring has no ends yet, and is at its address as long as the lane.
            None => unsafe { Ring::ends(ring) },
            Some(cpu) => {
                // SAFETY: The ring has no ends yet, and is at its address as long as the lane.
                let (producer, end, consumer) = unsafe { Ring::ends_with_building(ring) };
                // SAFETY: The lane stays until it is stopped, and nothing kicks what builds before it has been started.
                unsafe { lane.build_cpu.start(cpu, end, address)? };
                (producer, consumer)
            }
        };
        *lane.consumer.get_mut() = Some(consumer);
        // SAFETY: The lane is ready to be polled, and stays until it is stopped.
        let started = unsafe { lane.worker.start(lane.cpu, address, Work::Carry, number) };
        started.inspect_err(|_| {
            // SAFETY: Nobody knows the lane.
            unsafe { lane.build_cpu.stop(lane.cpu) }
        })?;
        Ok((lane, producer))
    }

    /// Returns memory for the requests of a lane. Process context.
    pub(crate) fn new_places() -> Result<Places> {
        Ok(VBox::init(init::zeroed(), GFP_KERNEL)?)
    }

    /// Returns whether packets may be left to it before they are built. Any context.
    pub(crate) fn has_places(&self) -> bool {
        self.ring.has_places()
    }

    /// Lets packets be left to it before they are built.
    ///
    /// # Safety: it has no places, and nobody gives it some at the same time.
    pub(crate) unsafe fn give_places(&self, places: Places) {
        // SAFETY: By the contract nobody else uses the cell, and the places stay until the ring is gone. The ring gets them once.
        unsafe {
            let places = (*self.places.get()).insert(places);
            self.ring.give_places(NonNull::from(&**places));
        }
    }

    /// Stops the lane: when it returns, no poll is running and none will, and its ring is empty. Process context.
    ///
    /// # Safety: nobody stops or kicks the lane at the same time, or fills its ring.
    pub(crate) unsafe fn stop(&self) {
        // SAFETY: By the contract. What builds comes first, as it kicks what carries.
        unsafe {
            self.build_cpu.stop(self.cpu);
            self.worker.stop();
        }
        // What no poll has taken is dropped here, and no longer charged.
        // SAFETY: The poll, which alone pops, does not run any more.
        while let Some(item) = unsafe { (*self.consumer.get()).as_mut() }.and_then(|consumer| {
            consumer.pop(|_, request| {
                // SAFETY: It was filled, and nobody else has it.
                let bytes = unsafe { request.memory_bytes() };
                SkBuff::discard(request);
                bytes
            })
        }) {
            let bytes = match item {
                Item::Packet(packet) => packet.memory_bytes(),
                Item::Built(bytes) => bytes,
                Item::Nothing | Item::BatchEnd(_) => 0,
            };
            pool::ring_bytes().release(self.cpu, u64::from(bytes));
        }
    }

    /// Returns the lane's name towards the merger.
    pub(crate) fn id(&self) -> LaneId {
        self.id
    }

    pub(crate) fn cpu(&self) -> u32 {
        self.cpu
    }

    #[cfg(all(CONFIG_MFLOW_JOIN_TRIAL, not(mflow_stock)))]
    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Returns the CPUs on which the lane works, each with the number of packets that it has carried there, or built.
    pub(crate) fn pkts_by_cpu(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let carried = (self.cpu, self.counters.get(Counter::LanePkts));
        let built = self.build_cpu.cpu().map(|cpu| (cpu, self.build_cpu.pkts()));
        Iterator::chain([carried].into_iter(), built)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    pub(crate) fn carries(&self) -> Carries {
        self.carries
    }

    /// Returns what is watched of the packets of its device.
    #[inline]
    fn watch(&self) -> Watch {
        // SAFETY: By the contract of `start` the device is there as long as the lane is not stopped.
        self.device
            .map_or(Watch::Nothing, |device| unsafe { device.watch() })
    }

    /// Returns the form that the datagrams of a batch have which begins with `packet`.
    ///
    /// # Safety: in the poll.
    unsafe fn form_of_batch(&self, packet: &SkBuff, joins: bool, watch: Watch) -> DatagramForm {
        let slot = packet.tag().slot();
        let knowledge = pool::slots().slot(slot);
        let wanted = match () {
            () if !joins => DatagramForm::Single,
            // Our device and our hook say which datagrams suit.
            () if !way::SLOTS_SAY_FORMS => DatagramForm::List,
            () => knowledge.datagram_form(),
        };
        let is_watched = wanted != DatagramForm::Single
            && match watch {
                Watch::Nothing => false,
                // SAFETY: By the contract softirqs are disabled.
                Watch::Filtered => unsafe { packet.may_be_tapped() },
                Watch::All => true,
            };
        let (form, device) = match self.device {
            // SAFETY: By the contract of `start` the device is there as long as the lane is not stopped.
            Some(device) if is_watched => (DatagramForm::Single, unsafe { device.index() }),
            _ => (wanted, 0),
        };
        knowledge.note_watched_device(device);
        // SAFETY: By the contract we are in the poll.
        unsafe { (*self.gro.get()).note_lists(slot, form != DatagramForm::Single) };
        form
    }

    /// Returns whether the ring, or the memory of packets that its CPU may have in rings, is at least half full.
    pub(crate) fn is_half_full(&self) -> bool {
        // CAST: a small constant.
        self.ring.len() >= RING_ITEMS as u32 / 2
            || !pool::ring_bytes().has_room(self.cpu, MAX_CPU_RING_BYTES / 2)
    }

    /// Marks what is in the ring now.
    pub(crate) fn set_mark(&self) {
        // ORDERING: Relaxed: used by one thread, under the configuration lock.
        self.mark.store(self.ring.mark(), Ordering::Relaxed);
    }

    /// Returns whether the lane has taken all that was marked.
    pub(crate) fn has_passed_mark(&self) -> bool {
        // ORDERING: Relaxed: see `set_mark`.
        self.ring.has_passed(self.mark.load(Ordering::Relaxed))
    }

    /// Schedules the poll that carries the packets in the ring, or the poll that builds them first where another CPU does that.
    /// Softirqs disabled.
    pub(crate) fn kick(&self) {
        if !self.build_cpu.kick() {
            self.worker.kick();
        }
    }

    /// Schedules the lane's poll on `cpu`, even if that is not the lane's own CPU. Softirqs disabled.
    pub(crate) fn kick_on(&self, cpu: u32) {
        self.worker.kick_on(cpu);
    }

    /// Returns whether it waits for its CPU, or for [`displace`](Self::displace), as that CPU is gone.
    pub(crate) fn waits_for_cpu(&self) -> bool {
        // ORDERING: Relaxed: used by one thread, under the configuration lock.
        self.carries == Carries::Stage
            && !self.is_displaced.load(Ordering::Relaxed)
            && runtime::is_cpu_gone(self.cpu)
    }

    /// Makes `cpu` carry the packets that wait for a CPU that is gone. Softirqs disabled.
    pub(crate) fn displace(&self, cpu: u32) {
        // ORDERING: Relaxed: the poll that is scheduled next sees it; one that runs meanwhile and does not schedules none.
        self.is_displaced.store(true, Ordering::Relaxed);
        self.kick_on(cpu);
    }

    /// Takes a packet that has reached the merge point inside this lane's poll.
    ///
    /// # Safety: in the poll.
    #[inline]
    pub(crate) unsafe fn collect(
        &self,
        slots: &Slots,
        tag: Tag,
        socket: Socket,
        mut packet: SkBuff,
        pkts: u32,
    ) {
        let amount = packet.set_parked(socket, pkts);
        // SAFETY: By the contract we are in the poll.
        let before = unsafe { (*self.collector.get()).add(tag, socket.number(), packet, amount) };
        if let Some(run) = before {
            merge_sink::park(slots, run);
        }
    }

    /// Parks what has been collected so far.
    ///
    /// # Safety: in the poll.
    pub(crate) unsafe fn park_collected(&self, slots: &Slots) {
        // SAFETY: By the contract we are in the poll.
        let run = unsafe { (*self.collector.get()).take() };
        if let Some(run) = run {
            merge_sink::park(slots, run);
        }
    }

    /// Parks what has been collected so far, and leaves the merging to the end of the batch or of the poll: the stack, which
    /// calls, may hold locks that delivering takes.
    ///
    /// # Safety: in the poll.
    pub(crate) unsafe fn park_collected_without_merging(&self, slots: &Slots) {
        // SAFETY: By the contract we are in the poll.
        let run = unsafe { (*self.collector.get()).take() };
        if let Some(run) = run {
            let slot = run.tag.slot();
            if merge_sink::park_without_merging(slots, run) {
                // SAFETY: By the contract we are in the poll.
                unsafe { *self.owes_merge.get() |= 1 << slot };
            }
        }
    }

    /// Brings all that was received to the merge point.
    ///
    /// # Safety: in the poll, and not in a call of the stack.
    unsafe fn let_go(&self, worker: Polling<'_>) {
        worker.flush();
        // SAFETY: By the contract we are in the poll, and the call of the stack has returned.
        unsafe { (*self.joiner.get()).note_flushed() };
    }

    /// Brings all that was received to the merge point, and parks it.
    ///
    /// # Safety: in the poll, and not in a call of the stack.
    unsafe fn flush(&self, slots: &Slots, worker: Polling<'_>) {
        // SAFETY: By the contract we are in the poll, and not in a call of the stack.
        let owed = unsafe {
            self.let_go(worker);
            self.park_collected(slots);
            core::mem::take(&mut *self.owes_merge.get())
        };
        if owed != 0 {
            (0..MAX_SLOTS)
                .filter(|slot| owed >> slot & 1 == 1)
                .for_each(|slot| merge_sink::merge(slots, slot));
        }
    }

    /// Gives a packet to the stack; returns whether it went past GRO. `joins` and `watch` say what may be joined, from the next batch on.
    ///
    /// # Safety: in the poll.
    #[inline]
    unsafe fn receive(
        &self,
        worker: Polling<'_>,
        mut packet: SkBuff,
        joins: bool,
        watch: Watch,
    ) -> bool {
        let tag = packet.tag();
        let slot = tag.slot();
        // SAFETY: By the contract we are in the poll; nothing in here calls the stack.
        let (form, joins_nothing) = unsafe {
            let form = (*self.batches.get())
                .datagram_form(slot, || self.form_of_batch(&packet, joins, watch));
            (form, (*self.gro.get()).goes_past(slot))
        };
        let goes_past = joins_nothing && packet.verify();
        if goes_past {
            packet.pull_overlay_headers();
            worker.receive_past_gro(packet);
        } else if joins_nothing {
            // SAFETY: By the contract we are in the poll, and not in a call of the stack.
            unsafe { self.receive_between(worker, packet, form) };
        } else {
            let joined = worker.receive(packet, form);
            // SAFETY: By the contract we are in the poll, and the call of the stack has returned.
            unsafe {
                (*self.joiner.get()).note_received(tag);
                (*self.gro.get()).note(slot, joined);
            }
        }
        goes_past
    }

    /// Gives a packet to GRO whose flow's other packets go past GRO, and keeps it in its place among them. What tells such a packet
    /// from the others may be its sender's choice: a datagram in no tunnel may begin like one in a tunnel.
    ///
    /// # Safety: in the poll, and not in a call of the stack.
    #[cold]
    unsafe fn receive_between(&self, worker: Polling<'_>, packet: SkBuff, form: DatagramForm) {
        // SAFETY: By the contract we are in the poll, and not in a call of the stack. GRO holds nothing when its work is done, as all that
        // it has got has been let go.
        unsafe {
            self.let_go(worker);
            worker.receive(packet, form);
            self.let_go(worker);
        }
    }

    /// Adds the frame of a request to the packet that GRO holds, or builds a packet of it, and counts why.
    ///
    /// # Safety: in the poll; the request was filled, and nobody uses it any more.
    #[inline]
    unsafe fn join_or_build(
        &self,
        worker: Polling<'_>,
        tag: Tag,
        request: &Request,
        joins: bool,
        alone_pkts: &mut [u32; NR_ALONE],
    ) -> RequestResult {
        // SAFETY: By the contract we are in the poll. Neither a driver that builds a packet nor the joiner calls the stack, which might
        // come back to these cells.
        unsafe {
            let joiner = &mut *self.joiner.get();
            let result = joiner.join(worker, tag, request, joins);
            let has_joined = match result {
                JoinResult::Alone(alone) => {
                    // PANIC: the enum's values are below the length.
                    alone_pkts[alone as usize] += 1;
                    false
                }
                JoinResult::Fragment | JoinResult::Member(_) => true,
            };
            (*self.batches.get()).note_request(tag.slot(), has_joined);
            if let JoinResult::Fragment = result {
                return RequestResult::Joined(tag);
            }
            let Some(mut packet) = worker.build(request) else {
                joiner.note_received(tag);
                return RequestResult::Dropped;
            };
            packet.set_tag(tag);
            if let JoinResult::Member(joined) = result {
                return match joiner.append(packet, tag, joined) {
                    Ok(()) => RequestResult::Joined(tag),
                    Err(packet) => {
                        alone_pkts[Alone::Driver as usize] += 1;
                        RequestResult::Packet(packet)
                    }
                };
            }
            RequestResult::Packet(packet)
        }
    }

    /// Carries at most `budget` packets; returns how many, or `budget` if it has to be called again.
    ///
    /// # Safety: called by the lane's NAPI.
    pub(crate) unsafe fn poll(&self, slots: &Slots, budget: u32) -> u32 {
        // SAFETY: By the contract the worker's poll is running.
        let worker = unsafe { self.worker.polling() };
        let mut work = 0;
        let (mut wire_pkts, mut past_gro_pkts, mut joined_pkts, mut bytes) = (0, 0, 0, 0);
        let mut alone_pkts = [0; NR_ALONE];
        let mut unflushed = false;
        let progress = LaneProgress::of(self.id);
        // SAFETY: By the contract we are in the poll.
        if !way::RUNS_TO_COMPLETION
            && (worker.follows() || !unsafe { self.end_settled(slots, worker) })
        {
            // It goes on, at the pace of its CPU's queues.
            progress.advance();
            return 0;
        }
        // SAFETY: By the contract we are in the poll, which alone uses the consumer; the borrow ends before the stack is
        // called.
        let waiting_items = unsafe { (*self.consumer.get()).as_mut() }
            .map_or(0, |consumer| consumer.waiting_items());
        worker.set_sums(waiting_items <= BUSY_ITEMS);
        let joins = runtime::joins();
        let watch = self.watch();
        if let Some(device) = self.device {
            // SAFETY: We are in the poll. By the contract of `start` the device is there as long as the lane is not stopped.
            unsafe { device.lend_gro() };
        }
        while work < budget {
            // SAFETY: By the contract we are in the poll, which alone pops. Nothing in here calls the stack, which might come
            // back to this cell: neither `pop` nor a driver that builds a packet does.
            let consumer = unsafe { (*self.consumer.get()).as_mut() };
            let item = consumer.and_then(|consumer| {
                consumer.pop(|tag, request| {
                    // SAFETY: `pop` gives out requests that were filled, each of them once. We are in the poll.
                    unsafe {
                        bytes += u64::from(request.memory_bytes());
                        self.join_or_build(worker, tag, request, joins, &mut alone_pkts)
                    }
                })
            });
            progress.advance();
            match item {
                Some(Item::Packet(packet)) => {
                    work += 1;
                    let pkts = u64::from(packet.wire_pkts());
                    wire_pkts += pkts;
                    bytes += u64::from(packet.memory_bytes());
                    unflushed = true;
                    // SAFETY: We are in the poll.
                    if unsafe { self.receive(worker, packet, joins, watch) } {
                        past_gro_pkts += pkts;
                    }
                }
                Some(Item::Built(result)) => {
                    work += 1;
                    wire_pkts += 1;
                    unflushed = true;
                    match result {
                        // SAFETY: We are in the poll.
                        RequestResult::Packet(packet) => unsafe {
                            past_gro_pkts += u64::from(self.receive(worker, packet, joins, watch));
                        },
                        RequestResult::Joined(tag) => {
                            joined_pkts += 1;
                            // SAFETY: We are in the poll.
                            unsafe { (*self.gro.get()).note(tag.slot(), true) };
                        }
                        RequestResult::Dropped => {}
                    }
                }
                Some(Item::Nothing) => {
                    work += 1;
                    wire_pkts += 1;
                }
                Some(Item::BatchEnd(tag)) => {
                    // SAFETY: We are in the poll.
                    unsafe { self.flush(slots, worker) };
                    unflushed = false;
                    let slot = slots.slot(tag.slot());
                    // SAFETY: We are in the poll, and not in a call of the stack.
                    let (requests_join, gro_joins) = unsafe {
                        (
                            (*self.batches.get()).end(tag.slot()),
                            (*self.gro.get()).end_batch(tag.slot()),
                        )
                    };
                    if let Some(join) = requests_join {
                        slot.note_joining(join);
                    }
                    if let Some(joins) = gro_joins {
                        slot.note_gro(joins);
                    }
                    if way::RUNS_TO_COMPLETION {
                        complete(slots, tag);
                    } else {
                        worker.settle(tag);
                        // SAFETY: We are in the poll.
                        unsafe { *self.settling.get() = tag };
                        break;
                    }
                }
                None => break,
            }
        }
        if unflushed {
            // SAFETY: We are in the poll.
            unsafe { self.flush(slots, worker) };
        }
        if bytes != 0 {
            pool::ring_bytes().release(self.cpu, bytes);
        }
        self.counters.add_owned(Counter::LanePkts, wire_pkts);
        self.counters.add_owned(Counter::PastGroPkts, past_gro_pkts);
        self.counters.add_owned(Counter::JoinedPkts, joined_pkts);
        for (counter, pkts) in Counter::OF_ALONE.into_iter().zip(alone_pkts) {
            if pkts != 0 {
                self.counters.add_owned(counter, pkts.into());
            }
        }
        work
    }
}

impl Lane {
    /// Completes the batch that has ended, if there is one and its packets have left the stack's queues. Returns false if they have
    /// not, true if the lane may go on.
    ///
    /// # Safety: in the poll, and not in a call of the stack.
    unsafe fn end_settled(&self, slots: &Slots, worker: Polling<'_>) -> bool {
        // SAFETY: By the contract we are in the poll.
        let tag = unsafe { *self.settling.get() };
        if tag == Tag::NONE {
            return true;
        }
        let settled = worker.has_settled();
        if settled {
            // SAFETY: By the contract we are in the poll.
            unsafe {
                *self.settling.get() = Tag::NONE;
                runs::park_here(slots);
            }
            complete(slots, tag);
        }
        settled
    }

    /// Builds packets for [`poll`](Self::poll) on the CPU that the lane has for that.
    ///
    /// # Safety: called by the NAPI of what builds for the lane.
    pub(crate) unsafe fn poll_building(&self, budget: u32) -> u32 {
        // SAFETY: By the contract.
        let work = unsafe {
            self.build_cpu
                .poll(self.cpu, LaneProgress::of(self.id), budget)
        };
        if work != 0 {
            self.worker.kick();
        }
        work
    }

    /// Does the same as [`poll`](Self::poll) for flows that are not split: nothing is tagged, collected or completed.
    ///
    /// # Safety: called by the lane's NAPI.
    pub(crate) unsafe fn poll_stage(&self, budget: u32) -> u32 {
        // SAFETY: By the contract the worker's poll is running.
        let worker = unsafe { self.worker.polling() };
        // SAFETY: Softirqs are disabled in a poll.
        let is_elsewhere = unsafe { ffi::mflow_this_cpu() } != self.cpu;
        // ORDERING: Relaxed: see `displace`.
        let is_displaced = || self.is_displaced.load(Ordering::Relaxed);
        if is_elsewhere && self.carries == Carries::Stage && !is_displaced() {
            // Other stages follow on this CPU: the packets would overtake those that their own CPU has handed on. The lane waits
            // until these have left the stages (`pipeline.rs`).
            return 0;
        }
        let most = match self.carries {
            Carries::Held => budget.saturating_mul(HELD_BUDGETS),
            Carries::Batches | Carries::Stage => budget,
        };
        let (mut work, mut wire_pkts, mut bytes) = (0, 0, 0);
        while work < most {
            // SAFETY: By the contract we are in the poll, which alone pops. The stack is called after that.
            let consumer = unsafe { (*self.consumer.get()).as_mut() };
            // No request is ever left to such a lane.
            let item =
                consumer.and_then(|consumer| consumer.pop(|_, request| SkBuff::discard(request)));
            let Some(item) = item else {
                break;
            };
            let Item::Packet(mut packet) = item else {
                continue;
            };
            work += 1;
            wire_pkts += u64::from(packet.wire_pkts());
            bytes += u64::from(packet.memory_bytes());
            let from = Stage::of_tag(packet.tag());
            packet.set_tag(Tag::NONE);
            if from.is_some_and(Stage::begins_with_gro) {
                worker.receive_stage(packet);
            } else {
                worker.receive_past_gro(packet);
            }
        }
        worker.flush();
        if bytes != 0 {
            pool::ring_bytes().release(self.cpu, bytes);
        }
        self.counters.add_owned(Counter::LanePkts, wire_pkts);
        // A NAPI that has done its budget is polled again.
        work.min(budget)
    }
}

/// Notes that a batch is complete, and merges if it was its turn.
fn complete(slots: &Slots, tag: Tag) {
    let slot = slots.slot(tag.slot());
    if slot.complete(tag.batch_near(slot.next())) {
        merge_sink::merge(slots, tag.slot());
    }
}
