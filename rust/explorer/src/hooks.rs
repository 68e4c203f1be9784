// SPDX-License-Identifier: GPL-2.0

//! The calls of the algorithm's copy: atomics that count each use, and the switch of planted faults.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{self, Ordering};

use crate::faults::FAULTS;

/// The most uses of shared words in one event. The longest event of the right algorithm has far fewer; see the reports.
const MOST_STEPS: u32 = 1_000;

/// Stands for no fault.
const NONE: usize = usize::MAX;

thread_local! {
    static STEPS: Cell<u32> = const { Cell::new(0) };
    static PLANTED: Cell<usize> = const { Cell::new(NONE) };
}

/// Counts a use of a shared word. Ends an event that has too many: a loop without an end is one, wherever in the algorithm it is.
#[inline]
pub(crate) fn count_step() {
    let steps = STEPS.get() + 1;
    STEPS.set(steps);
    if steps > MOST_STEPS {
        // What runs while this panic unwinds may use shared words, too.
        STEPS.set(0);
        std::panic::panic_any(Endless);
    }
}

/// The panic of an event that does not end.
pub(crate) struct Endless;

/// Returns the count of steps since the last call, and sets it to 0.
pub(crate) fn take_steps() -> u32 {
    STEPS.replace(0)
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

/// Puts a barrier between the accesses before it and those behind it, and counts a step.
pub(crate) fn fence(order: Ordering) {
    count_step();
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
                    count_step();
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
        count_step();
        &self.0
    }
}
