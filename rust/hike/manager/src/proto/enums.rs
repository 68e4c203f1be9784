// SPDX-License-Identifier: GPL-2.0

//! Numbers in messages, and the values that have them; 0 says nothing.

use anyhow::bail;
use mflow_hike::config::path::{Exceptions, Mode};
use mflow_hike::counters::reason::Fate;
use mflow_hike::{Action, Cache, Direction, Engine, Flavour, Hook, Lanes, XdpMode};
use serde::{Serialize, Serializer};

use crate::configuration::file::word;
use crate::configuration::kernel::KernelAction;
use crate::configuration::objects::Kind;
use crate::configuration::Origin;
use crate::v1;

/// The word for what this version does not know.
const UNKNOWN: &str = "unspecified";

/// A type whose values have numbers in messages.
pub trait Numbered: Sized {
    /// The word for such a value, and the count of values.
    const WHAT: (&'static str, usize);

    /// Returns what has this number, if it has one.
    fn of(number: i32) -> Option<Self>;

    /// Returns all that have numbers.
    fn all() -> impl Iterator<Item = Self> {
        (1..).map_while(Self::of)
    }

    /// Returns what has this number; none for 0.
    fn or_none(number: i32) -> anyhow::Result<Option<Self>> {
        let (what, most) = Self::WHAT;
        match Self::of(number) {
            None if number != 0 => bail!("{number} is no {what}: 0 to {most} are allowed"),
            known => Ok(known),
        }
    }

    /// Returns what has this number, which has to be there.
    fn some(number: i32) -> anyhow::Result<Self> {
        let (what, most) = Self::WHAT;
        match Self::of(number) {
            None => bail!("{number} is no {what}: 1 to {most} are allowed"),
            Some(known) => Ok(known),
        }
    }
}

/// Returns the word for a number.
pub fn word_of<T: Numbered + Serialize>(number: i32) -> String {
    T::of(number).map_or(UNKNOWN.to_owned(), |value| word(&value))
}

/// Writes the word for a number.
pub(crate) fn write_word<T: Numbered + Serialize, S: Serializer>(
    number: &i32,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&word_of::<T>(*number))
}

/// Gives types the numbers that an enum of messages has for values of the same names.
macro_rules! numbered {
    ($($type:ident: $message:ident, $what:literal, $($value:ident)+;)+) => {$(
        impl From<$type> for v1::$message {
            fn from(value: $type) -> Self {
                match value {
                    $($type::$value => Self::$value,)+
                }
            }
        }

        impl Numbered for $type {
            const WHAT: (&'static str, usize) = ($what, [$(stringify!($value)),+].len());

            fn of(number: i32) -> Option<Self> {
                match v1::$message::try_from(number) {
                    $(Ok(v1::$message::$value) => Some(Self::$value),)+
                    Ok(v1::$message::Unspecified) | Err(_) => None,
                }
            }
        }
    )+};
}

numbered! {
    Hook: Hook, "hook", Xdp Tcx;
    Engine: Engine, "engine", Compiled TailCalls;
    XdpMode: XdpMode, "mode", Native Generic;
    Cache: Cache, "cache", On Off;
    Mode: PathMode, "mode", Encaps Reduced;
    Exceptions: PathExceptions, "way with exceptions", Dropped Left Told;
    Flavour: Flavour, "flavour", Psp Usp Usd;
    Lanes: Lanes, "request to mflow", Split Never;
    Origin: Origin, "origin", Inside Anywhere;
    Action: RuleAction, "action", Allow Deny;
    Direction: Direction, "direction", In Out;
    Fate: Fate, "fate", Passed Redirected Dropped;
    KernelAction: KernelAction, "action", End EndX EndT EndDx6 EndDx4 EndDt6 EndDt4 EndDt46;
    Kind: Kind, "kind", Engine Device Port Chain Path Class Route Monitor Behaviour Rule Flow Hook KernelRoute Inside Mode Cache CacheEntries Session;
}
