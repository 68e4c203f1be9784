// SPDX-License-Identifier: GPL-2.0

//! The explored state: one block of memory that holds all there is.
//!
//! The algorithm's types hold atomics and pointers to each other, so a state cannot be cloned as a value. But they allocate nothing,
//! have no statics, and read no clock of their own. So here dispatchers, lanes, slots, packets and surroundings lie in one block at a
//! fixed address. A copy of the block's bytes is a *snapshot*, and to copy them back is to go back: each pointer leads into the block, to
//! where it led before.
//!
//! A state's *digest* is a hash of these bytes. States of equal bytes have equal futures, as an event reads nothing else. So no list of
//! what matters has to be kept, and none can lack anything. Left out are counters that nothing reads but people (`READ_COUNTERS` has the
//! others). Numbers are not made relative to the window: the events of a sequence are bounded, and so are its numbers. What is not used
//! any more, as an empty place of a ring, may tell states apart that are the same. That costs time, and hides nothing.

use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::array;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::{self, NonNull};

use crate::algo::counters::{Counter, Counters};
use crate::algo::flow::dispatcher::Dispatcher;
use crate::algo::lanes::queue::ring::{Producer, RequestPlaces, Ring};
use crate::algo::merge::lane_run::Collector;
use crate::algo::merge::slot_pool::NR_SLOTS;
use crate::around::{Around, Live};
use crate::event::Scenario;
use crate::packet::{Node, Nodes, TestPacket, NODES};
use crate::stack::{Lane, Shared, Stack};
use crate::{CARRIERS, LANES, SOURCES};

/// The counters that the algorithm, or a property, reads.
const READ_COUNTERS: [Counter; 5] = [
    Counter::LanePkts,
    Counter::InlinePkts,
    Counter::LatePkts,
    Counter::DeadlineBatches,
    Counter::OverflowBatches,
];

/// A source of the module, with its lanes.
pub(crate) struct Source {
    pub(crate) dispatcher: Dispatcher<TestPacket>,
    pub(crate) counters: Counters,
    rings: [Ring<TestPacket>; CARRIERS],
    places: [RequestPlaces<TestPacket>; CARRIERS],
    pub(crate) lanes: [Lane; CARRIERS],
}

/// The layout of the block.
struct Block {
    shared: Shared,
    sources: [Source; SOURCES],
    around: Around,
    nodes: [Node; NODES],
}

/// A copy of the block.
pub(crate) struct Snapshot(Box<[MaybeUninit<u64>]>);

impl Snapshot {
    /// The memory of one, in bytes.
    pub(crate) const BYTES: usize = size_of::<Block>();
}

/// The block.
pub(crate) struct Image {
    block: NonNull<Block>,
    scenario: Scenario,
    /// The words of the block that the digest covers.
    covered: Vec<Range<usize>>,
}

const WORDS: usize = size_of::<Block>() / size_of::<u64>();

const _: () = assert!(size_of::<Block>() % size_of::<u64>() == 0);

impl Image {
    /// Returns a state in which nothing has happened. `first` are the first numbers of slots, and `probe` is that of probes.
    pub(crate) fn new(scenario: Scenario, first: [u32; NR_SLOTS], probe: u32) -> Self {
        let layout = Layout::new::<Block>();
        // SAFETY: The layout has a size.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(block) = NonNull::new(memory.cast::<Block>()) else {
            handle_alloc_error(layout);
        };
        let mut image = Self {
            block,
            scenario,
            covered: Vec::new(),
        };
        // SAFETY: The nodes are a part of the block, which stays where it is, and are used in no other way.
        unsafe {
            let nodes = &raw mut (*block.as_ptr()).nodes;
            let nodes = Nodes::at(NonNull::new_unchecked(nodes.cast()));
            (&raw mut (*block.as_ptr()).around.nodes).write(nodes);
        }
        image.around_mut().books.begin();
        image.start_module(first, probe);
        image.covered = image.words_in_use();
        image
    }

    /// Puts a module that has just been loaded in the place of any before it.
    pub(crate) fn start_module(&self, first: [u32; NR_SLOTS], probe: u32) {
        let block = self.block.as_ptr();
        // SAFETY: Nobody uses the module now. Zeros are a new value of each part of both, but for lanes, which are written below.
        unsafe {
            (&raw mut (*block).shared).write_bytes(0, 1);
            (&raw mut (*block).sources).write_bytes(0, 1);
        }
        let mut numbers = std::iter::once(probe).chain(first);
        let slots = &self.shared().slots;
        slots.start(|| numbers.next().expect("a number for each slot"));
        for source in 0..usize::from(self.scenario.sources) {
            self.shared().slots.note_source();
            let producers: [_; CARRIERS] = array::from_fn(|lane| self.make_lane(source, lane));
            let has_own_lane = self.scenario.has_own_lane;
            // SAFETY: Nobody else uses the dispatcher while `self` is borrowed.
            let lanes = unsafe { &mut (*self.dispatcher(source)).lanes };
            for (lane, producer) in producers.into_iter().enumerate() {
                // CAST: a small number.
                let (id, cpu) = (Around::id_of(source, lane), lane as u32);
                if lane < LANES {
                    assert!(lanes.add(producer, id, cpu).is_ok(), "there is room");
                } else if has_own_lane {
                    lanes.add_own(producer, id, cpu);
                }
            }
        }
    }

    /// Makes a lane in memory of zeros. Returns the end of its ring for the dispatcher.
    fn make_lane(&self, source: usize, lane: usize) -> Producer<TestPacket> {
        let block = self.block.as_ptr();
        // SAFETY: The ring is there as long as the block, and has just been made of zeros, as have its places. These are the only
        // calls for it. The lane's memory has no value yet, and nobody uses it.
        unsafe {
            let ring = NonNull::new_unchecked(&raw mut (*block).sources[source].rings[lane]);
            let (producer, consumer) = Ring::ends(ring);
            let places = &raw mut (*block).sources[source].places[lane];
            ring.as_ref().give_places(NonNull::new_unchecked(places));
            (&raw mut (*block).sources[source].lanes[lane]).write(Lane {
                consumer,
                collector: Collector::new(),
            });
            producer
        }
    }

    /// Returns what all sources share.
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: The block is there, and nobody has a mutable reference to this part.
        unsafe { &(*self.block.as_ptr()).shared }
    }

    /// Returns the surroundings.
    pub(crate) fn around(&self) -> &Around {
        // SAFETY: As above; `self` is borrowed.
        unsafe { &(*self.block.as_ptr()).around }
    }

    /// Returns the surroundings, to be changed.
    pub(crate) fn around_mut(&mut self) -> &mut Around {
        // SAFETY: As above.
        unsafe { &mut (*self.block.as_ptr()).around }
    }

    /// Returns the surroundings, as events use them.
    pub(crate) fn live(&self) -> Live {
        // SAFETY: They are a part of the block. Events use them by this call, or borrow them between calls of the algorithm.
        unsafe {
            Live::at(NonNull::new_unchecked(
                &raw mut (*self.block.as_ptr()).around,
            ))
        }
    }

    /// Returns the stack below a source.
    pub(crate) fn stack(&self, source: usize) -> Stack<'_> {
        Stack {
            shared: self.shared(),
            around: self.live(),
            scenario: self.scenario,
            source,
        }
    }

    /// Returns a source.
    fn source(&self, source: usize) -> *mut Source {
        assert!(source < SOURCES);
        // SAFETY: It is a part of the block.
        unsafe { &raw mut (*self.block.as_ptr()).sources[source] }
    }

    /// Returns the counters of a source.
    pub(crate) fn counters(&self, source: usize) -> &Counters {
        // SAFETY: The block is there as long as `self`, which is borrowed; counters are shared.
        unsafe { &(*self.source(source)).counters }
    }

    /// Returns the dispatcher of a source, which is used by one core.
    pub(crate) fn dispatcher(&self, source: usize) -> *mut Dispatcher<TestPacket> {
        // SAFETY: It is a part of the source.
        unsafe { &raw mut (*self.source(source)).dispatcher }
    }

    /// Returns a lane, which is used by one core.
    pub(crate) fn lane(&self, source: usize, lane: usize) -> *mut Lane {
        assert!(lane < CARRIERS);
        // SAFETY: It is a part of the source.
        unsafe { &raw mut (*self.source(source)).lanes[lane] }
    }

    /// Lets each lane look how far its ring is filled. Otherwise states would differ in when it has looked last, for nothing: it looks
    /// again where it has seen nothing more.
    pub(crate) fn look_into_rings(&mut self) {
        for source in 0..usize::from(self.scenario.sources) {
            for lane in 0..CARRIERS {
                // SAFETY: Nobody else uses the lane while `self` is borrowed.
                unsafe { (*self.lane(source, lane)).consumer.waiting_items() };
            }
        }
    }

    /// Returns a lane's ring.
    pub(crate) fn ring(&self, source: usize, lane: usize) -> &Ring<TestPacket> {
        assert!(source < SOURCES && lane < CARRIERS);
        // SAFETY: It is a part of the block, and shared by its ends.
        unsafe { &(*self.block.as_ptr()).sources[source].rings[lane] }
    }

    /// Returns a counter's sum over sources and slots.
    pub(crate) fn count(&self, counter: Counter) -> u64 {
        let slots = self.shared().slots.iter().map(|slot| &slot.counters);
        self.counters_of_sources()
            .chain(slots)
            .map(|counters| counters.get(counter))
            .sum()
    }

    /// Returns how many packets each slot has counted as late.
    pub(crate) fn late_pkts(&self) -> [u64; NR_SLOTS] {
        let slots = &self.shared().slots;
        array::from_fn(|slot| slots.slot(slot).counters.get(Counter::LatePkts))
    }

    fn counters_of_sources(&self) -> impl Iterator<Item = &Counters> {
        (0..SOURCES).map(|source| self.counters(source))
    }

    fn all_counters(&self) -> impl Iterator<Item = &Counters> {
        let slots = self.shared().slots.iter().map(|slot| &slot.counters);
        self.counters_of_sources().chain(slots)
    }

    /// Returns the words of the block that are neither counters nor parts that the scenario has not.
    fn words_in_use(&self) -> Vec<Range<usize>> {
        let counters = self.all_counters().map(|one| self.range_of(one));
        let mut left_out: Vec<Range<usize>> = counters.collect();
        for number in 0..SOURCES {
            let source = self.source(number);
            if number >= usize::from(self.scenario.sources) {
                left_out.push(self.range_of(source));
            } else if !self.scenario.has_own_lane {
                // SAFETY: All are parts of the source.
                unsafe {
                    left_out.push(self.range_of(&raw const (*source).rings[LANES]));
                    left_out.push(self.range_of(&raw const (*source).places[LANES]));
                    left_out.push(self.range_of(&raw const (*source).lanes[LANES]));
                }
            }
        }
        left_out.sort_by_key(|range| range.start);
        let mut covered = Vec::new();
        let mut next = 0;
        for range in left_out {
            if range.start > next {
                covered.push(next..range.start);
            }
            next = next.max(range.end);
        }
        covered.push(next..WORDS);
        covered
    }

    /// Returns the words of a part of the block.
    fn range_of<T>(&self, part: *const T) -> Range<usize> {
        const { assert!(align_of::<T>() >= 8) };
        let first = (part.addr() - self.block.addr().get()) / 8;
        first..first + size_of::<T>() / 8
    }

    fn words(&self) -> *mut MaybeUninit<u64> {
        self.block.as_ptr().cast()
    }

    /// Returns a snapshot.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot(vec![MaybeUninit::uninit(); WORDS].into());
        self.save(&mut snapshot);
        snapshot
    }

    /// Puts the state into a snapshot.
    pub(crate) fn save(&self, snapshot: &mut Snapshot) {
        // SAFETY: Both are of this size, and nobody uses the block meanwhile.
        unsafe {
            ptr::copy_nonoverlapping(self.words(), snapshot.0.as_mut_ptr(), WORDS);
        }
    }

    /// Goes back to a snapshot of this image.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) {
        // SAFETY: Both are of this size, and nobody uses the block meanwhile. The bytes were those of the block: its values are valid,
        // and pointers lead into the block, which has not moved.
        unsafe {
            ptr::copy_nonoverlapping(snapshot.0.as_ptr(), self.words(), WORDS);
        }
    }

    /// Returns the digest. Of ten million states, two have the same by chance with a probability of some millionths.
    pub(crate) fn digest(&self) -> u64 {
        // Four hashes beside each other, as the processor multiplies several numbers at the same time.
        let mut hash = [1, 2, 3, 4_u64];
        let mut add = |word: u64, place: usize| {
            let hash = &mut hash[place % 4];
            *hash = (*hash ^ word)
                .wrapping_mul(0xff51_afd7_ed55_8ccd)
                .rotate_left(29);
        };
        let words = self.words().cast::<u64>();
        for range in &self.covered {
            for place in range.clone() {
                // SAFETY: The word is in the block. It may be padding, which no write has to leave as it is: a volatile read takes
                // what is there.
                add(unsafe { words.add(place).read_volatile() }, place);
            }
        }
        for counters in self.all_counters() {
            for counter in READ_COUNTERS {
                add(counters.get(counter), 0);
            }
        }
        hash.into_iter().fold(0, |both: u64, hash| {
            let mixed = (both.rotate_left(17) ^ hash).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
            mixed ^ mixed >> 32
        })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: It was allocated with this layout. Nothing in it owns memory elsewhere.
        unsafe { dealloc(self.block.as_ptr().cast(), Layout::new::<Block>()) };
    }
}

/// Fills the stack below the caller with zeros, so that padding which is copied from there is the same nearly each time.
#[inline(never)]
pub(crate) fn clear_stack() {
    let mut room = [MaybeUninit::<u64>::uninit(); 1_024];
    for word in &mut room {
        // SAFETY: It is ours.
        unsafe { word.as_mut_ptr().write_volatile(0) };
    }
}
