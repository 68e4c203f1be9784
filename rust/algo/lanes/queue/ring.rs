// SPDX-License-Identifier: GPL-2.0

//! From the NIC's core to a lane: a bounded ring with one producer and one consumer.
//!
//! | | |
//! |---|---|
//! | producer | the source that receives the flow, in one context at a time; wait-free |
//! | consumer | the lane, in one context at a time; wait-free |
//! | building end | where a lane has two CPUs: the first of them, in one context at a time; wait-free |
//! | full | the producer asks for room before it starts a batch; what it has reserved always fits |
//! | cost | each side does one store and one release store per packet, and the lane two release stores per request; a side reads the other's index only if its own copy of it says "full" or "empty" |
//!
//! A *request* is a packet that is not built yet. It lies in a place of its own. The producer takes the place and fills it, and may
//! fill it again once the lane has built the packet. Places are used in turn, so two counts say which are free. The producer's next
//! push, take or `publish` publishes the request, which has been filled by then. A ring has no places until it is given some, as
//! most drivers build all packets: they take four times the memory of the items. Each end finds them by a pointer on a line that it
//! writes anyway.
//!
//! A ring may have a *building end* between the two: it goes over the items before the consumer sees them, and puts a packet in
//! the place of each request. Nothing is moved: room, order and the ends of batches stay as the producer has made them.
//!
//! `head`, `built` and `tail` count items, `freed` counts requests; they wrap, and lie on cache lines of their own (128 bytes:
//! adjacent lines are fetched in pairs). Memory of zeros is an empty ring without places.

use super::Packet;
use crate::algo::sync::{AtomicPtr, AtomicU32, Ordering};
use crate::algo::tag::Tag;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

/// Items a ring can hold; a power of two, and more than [`MAX_BATCH_PKTS`](crate::algo::limits::MAX_BATCH_PKTS).
pub const RING_ITEMS: usize = if cfg!(loom) { 4 } else { 8192 };

/// Requests a ring with places can hold; a power of two.
pub const RING_REQUESTS: usize = if cfg!(loom) { 2 } else { 4096 };

/// The memory of a request, at most.
pub const REQUEST_BYTES: usize = 64;

const MASK: u32 = RING_ITEMS as u32 - 1;
const REQUEST_MASK: u32 = RING_REQUESTS as u32 - 1;

// The form of an item is in the lowest bits of its word. Nodes are aligned, so those of an address are zero.
const FORM_MASK: usize = 3;
const FORM_BATCH_END: usize = 1;
const FORM_REQUEST: usize = 2;
const FORM_NOTHING: usize = 3;
const FORM_BITS: u32 = 2;

/// An item that the NIC's core hands to a lane.
#[derive(Debug)]
pub enum Item<P, B> {
    /// A tagged packet.
    Packet(P),
    /// The result of a request.
    Built(B),
    /// The building end could make nothing of a request.
    Nothing,
    /// No more packets of this batch will follow.
    BatchEnd(Tag),
}

#[derive(Debug)]
#[repr(align(128))]
struct OwnLine<T>(T);

/// The places for a ring's requests. Memory of zeros has empty ones, if that of a request is one without contents.
pub struct RequestPlaces<P: Packet>([P::Request; RING_REQUESTS]);

impl<P: Packet> Default for RequestPlaces<P> {
    fn default() -> Self {
        Self(core::array::from_fn(|_| P::Request::default()))
    }
}

/// The fields of the end that builds.
struct Requests<P: Packet> {
    // INVARIANT: at most RING_REQUESTS places have been taken and not freed.
    freed: AtomicU32,
    // INVARIANT: null, or places that outlive the ring. Where there is a request, they are there.
    places: AtomicPtr<RequestPlaces<P>>,
}

/// The shared memory of a ring. See the head of this file.
pub struct Ring<P: Packet> {
    // INVARIANT: `tail - head <= RING_ITEMS`; the items in between hold what was published and not yet popped.
    head: OwnLine<AtomicU32>,
    // INVARIANT: with a building end, it lies between `head` and `tail`, and no request lies before it; without one, it stays 0.
    built: OwnLine<AtomicU32>,
    tail: OwnLine<AtomicU32>,
    requests: OwnLine<Requests<P>>,
    // A node's address, or a tag and a form.
    items: [AtomicPtr<P::Node>; RING_ITEMS],
    packets: PhantomData<P>,
}

// SAFETY: A ring owns the packets and requests in it; the indices hand them from one side to the other.
unsafe impl<P: Packet + Send> Send for Ring<P> {}
// SAFETY: Shared access compares the indices only; items and requests are reached through the ends, of which there is one
// each by the contract of `Ring::ends`, and each request by one of them at a time.
unsafe impl<P: Packet + Send> Sync for Ring<P> {}

impl<P: Packet> Ring<P> {
    /// Returns an empty ring without places for requests.
    pub fn new() -> Self {
        Self {
            head: OwnLine(AtomicU32::new(0)),
            built: OwnLine(AtomicU32::new(0)),
            tail: OwnLine(AtomicU32::new(0)),
            requests: OwnLine(Requests {
                freed: AtomicU32::new(0),
                places: AtomicPtr::new(ptr::null_mut()),
            }),
            items: core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            packets: PhantomData,
        }
    }

    /// Returns whether all that was published has been popped. Any context.
    pub fn is_empty(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `Consumer::pop`: what was done with earlier items is visible.
        let head = self.head.0.load(Ordering::Acquire);
        // ORDERING: Relaxed: a snapshot.
        self.tail.0.load(Ordering::Relaxed) == head
    }

    /// Returns how many items wait. Any context.
    pub fn len(&self) -> u32 {
        // ORDERING: Acquire pairs with the Release in `Consumer::pop`. The consumer had seen a tail that is not before this head,
        // and we see no earlier tail.
        let head = self.head.0.load(Ordering::Acquire);
        // ORDERING: Relaxed: a snapshot.
        self.tail.0.load(Ordering::Relaxed).wrapping_sub(head)
    }

    /// Gives the ring places for requests, which its producer uses from its next reservation on. Any context.
    ///
    /// # Safety
    ///
    /// 1. `places` are empty, outlive the ring and both ends, and are nobody else's.
    /// 2. It is called once at most.
    pub unsafe fn give_places(&self, places: NonNull<RequestPlaces<P>>) {
        // ORDERING: Release pairs with the Acquire in `Producer::reserve_requests`: empty places are visible with the pointer.
        let requests = &self.requests.0;
        requests.places.store(places.as_ptr(), Ordering::Release);
    }

    /// Returns whether it has places for requests. Any context.
    pub fn has_places(&self) -> bool {
        // ORDERING: Relaxed: a snapshot.
        !self.requests.0.places.load(Ordering::Relaxed).is_null()
    }

    /// Builds the oldest request, behind the `freed` requests that have been built, and frees its place. Called by the end that
    /// builds, for a request.
    #[inline]
    fn build<B>(&self, freed: &mut u32, tag: Tag, build: impl FnOnce(Tag, &P::Request) -> B) -> B {
        let requests = &self.requests.0;
        // ORDERING: Relaxed: the producer had seen the places before it published the request.
        let places = requests.places.load(Ordering::Relaxed);
        // SAFETY: By the invariant they are there, as there is a request.
        let RequestPlaces(places) = unsafe { &*places };
        // PANIC: masked to below the length.
        let built = build(tag, &places[(*freed & REQUEST_MASK) as usize]);
        *freed = freed.wrapping_add(1);
        // ORDERING: Release pairs with the Acquire in `Producer::reserve_requests`: the place is free only now.
        requests.freed.store(*freed, Ordering::Release);
        built
    }

    /// Returns a mark behind all that has been published so far. Any context.
    pub fn mark(&self) -> u32 {
        // ORDERING: Relaxed: a snapshot; the caller has seen to it that what it means to mark has been published.
        self.tail.0.load(Ordering::Relaxed)
    }

    /// Returns whether all that lies before a [`mark`](Self::mark) has been popped. Any context.
    pub fn has_passed(&self, mark: u32) -> bool {
        // ORDERING: Acquire pairs with the Release in `Consumer::pop`: what was done with earlier items is visible.
        let head = self.head.0.load(Ordering::Acquire);
        // CAST: the sign of the difference says which comes first.
        head.wrapping_sub(mark) as i32 >= 0
    }

    /// Returns the two ends of `ring`.
    ///
    /// # Safety
    ///
    /// 1. `ring` outlives both ends.
    /// 2. For each ring, either this or [`ends_with_building`](Self::ends_with_building) is called, and only once.
    pub unsafe fn ends(ring: NonNull<Self>) -> (Producer<P>, Consumer<P>) {
        Self::ends_of(ring, false)
    }

    /// Returns the ends of `ring`, with a building end between producer and consumer.
    ///
    /// # Safety
    ///
    /// As for [`ends`](Self::ends).
    pub unsafe fn ends_with_building(
        ring: NonNull<Self>,
    ) -> (Producer<P>, BuildingEnd<P>, Consumer<P>) {
        let (producer, consumer) = Self::ends_of(ring, true);
        let building = BuildingEnd {
            ring,
            built: 0,
            tail_seen: 0,
            freed: 0,
        };
        (producer, building, consumer)
    }

    fn ends_of(ring: NonNull<Self>, builds_apart: bool) -> (Producer<P>, Consumer<P>) {
        // loom's cells are larger than what is in them.
        const { assert!(cfg!(loom) || size_of::<P::Request>() <= REQUEST_BYTES) };
        let producer = Producer {
            ring,
            builds_apart,
            tail: 0,
            head_seen: 0,
            reserved: 0,
            places: NonNull::dangling(),
            nr_places: 0,
            requests: 0,
            freed_seen: 0,
            reserved_requests: 0,
        };
        let consumer = Consumer {
            ring,
            builds_apart,
            head: 0,
            tail_seen: 0,
            freed: 0,
        };
        (producer, consumer)
    }
}

impl<P: Packet> Default for Ring<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Packet> Drop for Ring<P> {
    fn drop(&mut self) {
        // SAFETY: We have the ring to ourselves, and the real ends are gone or will not be used again.
        let (_, mut consumer) = unsafe { Self::ends(NonNull::from(&mut *self)) };
        // ORDERING: Relaxed: we have the ring to ourselves.
        consumer.head = self.head.0.load(Ordering::Relaxed);
        consumer.tail_seen = consumer.head;
        consumer.freed = self.requests.0.freed.load(Ordering::Relaxed);
        while consumer.pop(|_, request| P::discard(request)).is_some() {}
    }
}

/// The producing end.
pub struct Producer<P: Packet> {
    ring: NonNull<Ring<P>>,
    builds_apart: bool,
    // Ahead of the published tail by the requests that are being filled.
    tail: u32,
    head_seen: u32,
    reserved: u32,
    // INVARIANT: they are the ring's if `nr_places` is not 0.
    places: NonNull<RequestPlaces<P>>,
    // The number of places that the ring is known to have.
    nr_places: u32,
    // The requests that have been taken.
    requests: u32,
    // The requests that are known to have been freed.
    freed_seen: u32,
    // The requests that are reserved: none while no places are known.
    reserved_requests: u32,
}

// SAFETY: Its own fields are numbers, and the ring and the packets that it pushes may be sent.
unsafe impl<P: Packet + Send> Send for Producer<P> {}

impl<P: Packet> Producer<P> {
    fn ring(&self) -> &Ring<P> {
        // SAFETY: By the contract of `Ring::ends` the ring outlives us.
        unsafe { self.ring.as_ref() }
    }

    /// Reserves room for `items` more; false if there is not that much.
    #[inline]
    pub fn reserve(&mut self, items: u32) -> bool {
        let wanted = self.reserved.wrapping_add(items);
        if self.room() < wanted {
            // ORDERING: Acquire pairs with the Release in `Consumer::pop`: the old items have been taken out.
            self.head_seen = self.ring().head.0.load(Ordering::Acquire);
            if self.room() < wanted {
                return false;
            }
        }
        self.reserved = wanted;
        true
    }

    /// Gives back room that was reserved and will not be used.
    #[inline]
    pub fn unreserve(&mut self, items: u32) {
        self.reserved = self.reserved.saturating_sub(items);
    }

    /// Returns how many items fit between the tail and the last known head.
    #[inline]
    fn room(&self) -> u32 {
        // CAST: the capacity is a small constant.
        (RING_ITEMS as u32).wrapping_sub(self.tail.wrapping_sub(self.head_seen))
    }

    /// Pushes a packet into reserved room; gives it back if none was reserved.
    #[inline]
    pub fn push(&mut self, packet: P) -> Result<(), P> {
        if self.reserved == 0 {
            return Err(packet);
        }
        self.put(packet.into_node().as_ptr());
        self.publish();
        Ok(())
    }

    /// Pushes the end of a batch into reserved room; false if none was reserved.
    #[inline]
    pub fn push_end(&mut self, tag: Tag) -> bool {
        if self.reserved == 0 {
            return false;
        }
        self.put(word(tag, FORM_BATCH_END));
        self.publish();
        true
    }

    /// Returns the number of items that the end that builds has not gone over, with those that are not published yet.
    #[inline]
    pub fn unbuilt_items(&mut self) -> u32 {
        if !self.builds_apart {
            return self.waiting_items();
        }
        // ORDERING: Relaxed: a snapshot.
        self.tail
            .wrapping_sub(self.ring().built.0.load(Ordering::Relaxed))
    }

    /// Returns the number of items that wait, with those that are not published yet.
    #[inline]
    pub fn waiting_items(&mut self) -> u32 {
        // ORDERING: Acquire pairs with the Release in `Consumer::pop`: the old items have been taken out.
        self.head_seen = self.ring().head.0.load(Ordering::Acquire);
        self.tail.wrapping_sub(self.head_seen)
    }

    /// Reserves places for `requests` more, beside the room for their items; false if there are not that many, or none at all.
    #[inline]
    pub fn reserve_requests(&mut self, requests: u32) -> bool {
        let wanted = self.reserved_requests.wrapping_add(requests);
        if self.request_room() < wanted {
            let shared = &self.ring().requests.0;
            // ORDERING: Acquire pairs with the Release in `Ring::build`: what was in the places has been taken.
            let freed = shared.freed.load(Ordering::Acquire);
            // ORDERING: Acquire pairs with the Release in `Ring::give_places`.
            let places = NonNull::new(shared.places.load(Ordering::Acquire));
            self.freed_seen = freed;
            if let Some(places) = places {
                // INVARIANT: these are the ring's. CAST: a small constant.
                (self.places, self.nr_places) = (places, RING_REQUESTS as u32);
            }
            if self.request_room() < wanted {
                return false;
            }
        }
        self.reserved_requests = wanted;
        true
    }

    /// Gives back places that were reserved and will not be used.
    #[inline]
    pub fn unreserve_requests(&mut self, requests: u32) {
        self.reserved_requests = self.reserved_requests.saturating_sub(requests);
    }

    #[inline]
    fn request_room(&self) -> u32 {
        let taken = self.requests.wrapping_sub(self.freed_seen);
        self.nr_places.wrapping_sub(taken)
    }

    /// Takes the next places for requests, and items for them: at most `most`, no more than were reserved, and none beyond the
    /// last place of the array. The caller fills the places before its next call of this producer. The next push, take or
    /// `publish` publishes them.
    #[inline(always)]
    pub fn take_requests(&mut self, tag: Tag, most: u32) -> &[P::Request] {
        if self.reserved == 0 || self.reserved_requests == 0 {
            return &[];
        }
        // CAST: the index is below the length, a small constant.
        let first = (self.requests & REQUEST_MASK) as usize;
        // Drivers with our hooks ask for one request. Where this is inlined, `most` is then a constant, and the compiler drops
        // the other branch.
        let requests = if most == 1 {
            1
        } else {
            let to_last = (RING_REQUESTS - first) as u32;
            let room = self.reserved.min(self.reserved_requests).min(to_last);
            most.min(room)
        };
        self.publish();
        for _ in 0..requests {
            self.put(word(tag, FORM_REQUEST));
        }
        self.requests = self.requests.wrapping_add(requests);
        self.reserved_requests -= requests;
        // SAFETY: Requests were reserved, so by the invariant these are the ring's, which outlive us.
        let RequestPlaces(places) = unsafe { self.places.as_ref() };
        // CAST: 32 bits into a usize.
        let taken = first..first + requests as usize;
        places.get(taken).unwrap_or_default()
    }

    /// Makes all items, and requests as they are filled now, visible to the consumer.
    #[inline]
    pub fn publish(&mut self) {
        // ORDERING: Release pairs with the Acquire in `Consumer::waiting_items` or `BuildingEnd::go_on`: items and what they lead
        // to are visible with the index.
        self.ring().tail.0.store(self.tail, Ordering::Release);
    }

    /// Puts an item into reserved room, without publishing it.
    #[inline]
    fn put(&mut self, word: *mut P::Node) {
        // PANIC: masked to below the length.
        // ORDERING: Relaxed: published by `publish`.
        self.ring().items[(self.tail & MASK) as usize].store(word, Ordering::Relaxed);
        self.tail = self.tail.wrapping_add(1);
        // INVARIANT: reserved room was free, so `tail - head` stays within the ring.
        self.reserved -= 1;
    }
}

/// Returns the tag in the word of an item that has a form.
#[inline]
fn tag_of<T>(word: *mut T) -> Tag {
    // CAST: where there is a form, the rest is a 32-bit tag.
    Tag::from_word((word.addr() >> FORM_BITS) as u32)
}

/// Returns the word of an item that is a tag and a form.
fn word<T>(tag: Tag, form: usize) -> *mut T {
    // CAST: 32 bits, shifted a little, fit an address of the 64-bit machines we run on.
    ptr::without_provenance_mut((tag.word() as usize) << FORM_BITS | form)
}

/// The end between the other two, which makes packets of requests.
pub struct BuildingEnd<P: Packet> {
    ring: NonNull<Ring<P>>,
    // The number of items that this end has gone over, published to the consumer or not.
    built: u32,
    tail_seen: u32,
    freed: u32,
}

// SAFETY: Its own fields are numbers, and the ring and the packets that it makes may be sent.
unsafe impl<P: Packet + Send> Send for BuildingEnd<P> {}

impl<P: Packet> BuildingEnd<P> {
    /// Goes over the next item. Returns false if there is none. Gives a request to `build`, with the packet's tag. `build` takes
    /// all that the request holds, and returns the packet that it has made, if any.
    #[inline]
    pub fn go_on(&mut self, build: impl FnOnce(Tag, &P::Request) -> Option<P>) -> bool {
        // SAFETY: By the contract of `Ring::ends` the ring outlives us.
        let ring = unsafe { self.ring.as_ref() };
        if self.built == self.tail_seen {
            // ORDERING: Acquire pairs with the Release in `Producer::publish`: items and requests are visible with the index.
            self.tail_seen = ring.tail.0.load(Ordering::Acquire);
            if self.built == self.tail_seen {
                return false;
            }
        }
        // PANIC: masked to below the length.
        let place = &ring.items[(self.built & MASK) as usize];
        // ORDERING: Relaxed, both: the Acquire above made the item visible, and `publish` does that with the packet. The
        // consumer does not come here before that, and the producer not before the consumer has.
        let item = place.load(Ordering::Relaxed);
        if item.addr() & FORM_MASK == FORM_REQUEST {
            let made = ring.build(&mut self.freed, tag_of(item), build);
            let made = made.map_or_else(
                || word(Tag::NONE, FORM_NOTHING),
                |packet| packet.into_node().as_ptr(),
            );
            place.store(made, Ordering::Relaxed);
        }
        self.built = self.built.wrapping_add(1);
        true
    }

    /// Makes all items that this end has gone over visible to the consumer.
    #[inline]
    pub fn publish(&mut self) {
        // SAFETY: By the contract of `Ring::ends` the ring outlives us.
        let ring = unsafe { self.ring.as_ref() };
        // ORDERING: Release pairs with the Acquire in `Consumer::waiting_items`: the packets are visible with the index.
        ring.built.0.store(self.built, Ordering::Release);
    }
}

/// The consuming end.
pub struct Consumer<P: Packet> {
    ring: NonNull<Ring<P>>,
    builds_apart: bool,
    head: u32,
    // The end of the items that may be popped, which the producer has published, or the building end if there is one.
    tail_seen: u32,
    freed: u32,
}

// SAFETY: Its own fields are numbers, and the ring and the packets that it pops may be sent.
unsafe impl<P: Packet + Send> Send for Consumer<P> {}

impl<P: Packet> Consumer<P> {
    /// Returns how many items wait.
    #[inline]
    pub fn waiting_items(&mut self) -> u32 {
        // SAFETY: By the contract of `Ring::ends` the ring outlives us.
        let ring = unsafe { self.ring.as_ref() };
        let end = if self.builds_apart {
            &ring.built
        } else {
            &ring.tail
        };
        // ORDERING: Acquire pairs with the Release in `BuildingEnd::publish` or `Producer::publish`: items and packets are visible
        // with the index.
        self.tail_seen = end.0.load(Ordering::Acquire);
        self.tail_seen.wrapping_sub(self.head)
    }

    /// Takes the oldest item out. Gives a request to `build`, with the packet's tag. `build` takes all that the request holds.
    #[inline]
    pub fn pop<B>(&mut self, build: impl FnOnce(Tag, &P::Request) -> B) -> Option<Item<P, B>> {
        // SAFETY: By the contract of `Ring::ends` the ring outlives us.
        let ring = unsafe { self.ring.as_ref() };
        if self.head == self.tail_seen && self.waiting_items() == 0 {
            return None;
        }
        // PANIC: masked to below the length.
        // ORDERING: Relaxed: the Acquire of `tail` in `waiting_items` made it visible.
        let word = ring.items[(self.head & MASK) as usize].load(Ordering::Relaxed);
        self.head = self.head.wrapping_add(1);
        // ORDERING: Release pairs with the Acquire in `Producer::reserve`: the place is free only after the load.
        ring.head.0.store(self.head, Ordering::Release);

        match word.addr() & FORM_MASK {
            FORM_BATCH_END => Some(Item::BatchEnd(tag_of(word))),
            FORM_REQUEST => {
                let built = ring.build(&mut self.freed, tag_of(word), build);
                Some(Item::Built(built))
            }
            FORM_NOTHING => Some(Item::Nothing),
            _ => {
                // PANIC: a pushed node is never null.
                let node = NonNull::new(word)?;
                // SAFETY: `push` gave the node up to the ring, and the place is read only once.
                Some(Item::Packet(unsafe { P::from_node(node) }))
            }
        }
    }
}
