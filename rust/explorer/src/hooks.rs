// SPDX-License-Identifier: GPL-2.0

//! The calls of the algorithm's copy: atomics that count each use, and the switch of planted faults.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{self, Ordering};

use crate::faults::FAULTS;

/// The most uses of shared words in one event. The longest event of the right algorithm has far fewer; see the reports.
const MOST_USES: u32 = 1_000;

/// Stands for no fault.
const NONE: usize = usize::MAX;

/// The work of other cores amid an event.
type Amid = NonNull<dyn FnMut()>;

thread_local! {
    static USES: Cell<u32> = const { Cell::new(0) };
    /// The uses after which the next one does not simply follow.
    static LIMIT: Cell<u32> = const { Cell::new(MOST_USES) };
    static AMID: Cell<Option<Amid>> = const { Cell::new(None) };
    static GIVEN_UP: RefCell<Vec<(usize, u32)>> = const { RefCell::new(Vec::new()) };
    static PLANTED: Cell<usize> = const { Cell::new(NONE) };
    static IS_NOTING: Cell<bool> = const { Cell::new(false) };
    static NOTES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Counts a use of a shared word, which follows.
#[inline]
pub(crate) fn count_use() {
    let uses = USES.get();
    USES.set(uses + 1);
    if uses >= LIMIT.get() {
        at_limit();
    }
}

/// Lets happen what is to happen amid an event, or ends an event that has too many uses: a loop without an end is one, wherever in the
/// algorithm it is.
#[cold]
fn at_limit() {
    LIMIT.set(MOST_USES);
    if let Some(mut amid) = AMID.take() {
        let uses = USES.replace(0);
        // SAFETY: `with_amid` has put it there, and has not returned. It is taken out, so nobody else calls it.
        unsafe { amid.as_mut()() };
        USES.set(uses);
        return;
    }
    // What runs while this panic unwinds may use shared words, too.
    USES.set(0);
    // Without a message: a planted fault may do this on purpose.
    std::panic::resume_unwind(Box::new(Endless));
}

/// The panic of an event that does not end.
pub(crate) struct Endless;

/// Calls `event`, and `amid` in the middle of it: when `uses` uses of shared words are done, before the next one. Returns what `event`
/// returns, and whether there was such a next use.
pub(crate) fn with_amid<R>(
    uses: u32,
    amid: &mut dyn FnMut(),
    event: impl FnOnce() -> R,
) -> (R, bool) {
    /// Takes out what has not been called, also if the event panics.
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            AMID.set(None);
            LIMIT.set(MOST_USES);
        }
    }
    let amid: *mut (dyn FnMut() + '_) = amid;
    // SAFETY: Only the lifetime changes. `Guard` takes it out before this returns.
    let amid = unsafe { std::mem::transmute::<*mut (dyn FnMut() + '_), *mut dyn FnMut()>(amid) };
    let _guard = Guard;
    USES.set(0);
    AMID.set(NonNull::new(amid));
    LIMIT.set(uses);
    let result = event();
    let is_called = AMID.take().is_none();
    (result, is_called)
}

/// Begins an event: no shared word has been used.
pub(crate) fn begin_event() {
    USES.set(0);
}

/// Returns the count of uses since an event began.
pub(crate) fn uses() -> u32 {
    USES.get()
}

/// Forgets what an event has left that did not end.
pub(crate) fn forget_reports() {
    GIVEN_UP.take();
}

/// Reports that a slot gives a batch up.
pub(crate) fn report_given_up<T>(slot: &T, batch: u32) {
    let address = std::ptr::from_ref(slot).addr();
    GIVEN_UP.with_borrow_mut(|given_up| given_up.push((address, batch)));
}

/// Returns the batches that a slot has given up since the last call.
pub(crate) fn take_given_up<T>(slot: &T) -> Vec<u32> {
    let address = std::ptr::from_ref(slot).addr();
    let mut batches = Vec::new();
    GIVEN_UP.with_borrow_mut(|given_up| {
        given_up.retain(|(slot, batch)| {
            if *slot == address {
                batches.push(*batch);
            }
            *slot != address
        });
    });
    batches
}

/// Begins to keep notes of what happens in events.
pub(crate) fn begin_notes() {
    IS_NOTING.set(true);
    NOTES.take();
}

/// Notes what happens, if notes are kept.
#[inline]
pub(crate) fn note(text: impl FnOnce() -> String) {
    if IS_NOTING.get() {
        // An event is the same with notes and without.
        let (uses, limit) = (USES.get(), LIMIT.replace(u32::MAX));
        let text = text();
        NOTES.with_borrow_mut(|notes| notes.push(text));
        USES.set(uses);
        LIMIT.set(limit);
    }
}

/// Returns the notes since the last call.
pub(crate) fn take_notes() -> Vec<String> {
    NOTES.take()
}

/// Keeps no more notes.
pub(crate) fn end_notes() {
    IS_NOTING.set(false);
}

/// Returns whether the fault with this number is planted on this thread.
#[inline]
pub(crate) fn is_planted(number: usize) -> bool {
    PLANTED.get() == number
}

/// Plants a fault on this thread, in the place of any other, or none.
pub(crate) fn plant(name: Option<&str>) {
    let number = name.map_or(NONE, |name| {
        let number = FAULTS.iter().position(|fault| fault.name == name);
        number.unwrap_or_else(|| panic!("there is no fault {name}"))
    });
    PLANTED.set(number);
}

/// Puts a barrier between the accesses before it and those behind it, and counts as a use.
pub(crate) fn fence(order: Ordering) {
    count_use();
    atomic::fence(order);
}

macro_rules! counted {
    ($($name:ident: $value:ty;)*) => {
        $(
            /// One of the standard atomics. Each use is counted.
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub(crate) struct $name(atomic::$name);

            impl $name {
                pub(crate) const fn new(value: $value) -> Self {
                    Self(atomic::$name::new(value))
                }
            }

            impl Deref for $name {
                type Target = atomic::$name;

                #[inline]
                fn deref(&self) -> &Self::Target {
                    count_use();
                    &self.0
                }
            }
        )*
    };
}

counted! {
    AtomicBool: bool;
    AtomicU32: u32;
    AtomicU64: u64;
}

/// One of the standard atomics. Each use is counted.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicPtr<T>(atomic::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    pub(crate) const fn new(pointer: *mut T) -> Self {
        Self(atomic::AtomicPtr::new(pointer))
    }
}

impl<T> Deref for AtomicPtr<T> {
    type Target = atomic::AtomicPtr<T>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        count_use();
        &self.0
    }
}
