// SPDX-License-Identifier: GPL-2.0

//! The keys that mean something, out of the bytes that a terminal sends.
//!
//! A key is a byte, or a sequence that begins with ESC (ECMA-48, sections 5.3 and 5.4; xterm's "PC-Style Function Keys"). Sequences may
//! come in pieces, may be unknown, and may have no end: `ESC [` is Alt-[, too. So each byte is taken as it comes, and none is waited for.

use std::mem;

const ESC: u8 = 0x1b;
const CONTROL_C: u8 = 0x03;
const CONTROL_L: u8 = 0x0c;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character of ASCII, typed without Ctrl and Alt.
    Char(char),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-L.
    Redraw,
    /// The arrow up.
    Up,
    /// The arrow down.
    Down,
    /// Page Up.
    PageUp,
    /// Page Down.
    PageDown,
    /// Home.
    Home,
}

/// The place in a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Outside,
    /// Behind ESC.
    Escaped,
    /// Behind `ESC O`: one more byte follows.
    Single,
    /// Behind `ESC [ [`, as Linux's console begins its function keys: one more byte follows.
    Console,
    /// Behind `ESC [`, with the number that stands there so far; nothing if more than a number stands there.
    Control(Option<u16>),
}

/// A reader of bytes.
#[derive(Debug, Default)]
pub struct Keys(Place);

impl Keys {
    /// Takes a byte, and returns the key that ends with it, if it means something.
    pub fn take(&mut self, byte: u8) -> Option<Key> {
        let place = mem::take(&mut self.0);
        match (place, byte) {
            // It is Ctrl-C wherever it comes.
            (_, CONTROL_C) => return Some(Key::Interrupt),
            (_, ESC) => self.0 = Place::Escaped,
            (Place::Outside, CONTROL_L) => return Some(Key::Redraw),
            (Place::Outside, b' '..=b'~') => return Some(Key::Char(char::from(byte))),
            (Place::Escaped, b'[') => self.0 = Place::Control(Some(0)),
            (Place::Escaped, b'O') => self.0 = Place::Single,
            (Place::Control(Some(0)), b'[') => self.0 = Place::Console,
            (Place::Control(number), b'0'..=b'9') => {
                let digit = u16::from(byte - b'0');
                let number = number.and_then(|number| number.checked_mul(10)?.checked_add(digit));
                self.0 = Place::Control(number);
            }
            // More parameters: Ctrl, Alt or Shift is held.
            (Place::Control(_), b' '..=b'?') => self.0 = Place::Control(None),
            (Place::Control(Some(number)), b'~') => return numbered(number),
            (Place::Control(Some(0)) | Place::Single, _) => return lettered(byte),
            // Behind ESC alone it is a key with Alt. The rest is unknown, or part of a character beyond ASCII.
            _ => {}
        }
        None
    }

    /// Forgets the begin of a sequence that nothing has followed for a while.
    pub fn forget(&mut self) {
        self.0 = Place::Outside;
    }
}

fn lettered(byte: u8) -> Option<Key> {
    match byte {
        b'A' => Some(Key::Up),
        b'B' => Some(Key::Down),
        b'H' => Some(Key::Home),
        _ => None,
    }
}

fn numbered(number: u16) -> Option<Key> {
    match number {
        // 7 on rxvt.
        1 | 7 => Some(Key::Home),
        5 => Some(Key::PageUp),
        6 => Some(Key::PageDown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut keys = Keys::default();
        bytes.iter().filter_map(|byte| keys.take(*byte)).collect()
    }

    #[test]
    fn each_key_is_known_in_all_its_forms() {
        for (sequences, key) in [
            (&["q"][..], Key::Char('q')),
            (&["\x03"], Key::Interrupt),
            (&["\x0c"], Key::Redraw),
            (&["\x1b[A", "\x1bOA"], Key::Up),
            (&["\x1b[B", "\x1bOB"], Key::Down),
            (&["\x1b[5~"], Key::PageUp),
            (&["\x1b[6~"], Key::PageDown),
            (&["\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~"], Key::Home),
        ] {
            for sequence in sequences {
                assert_eq!(keys(sequence.as_bytes()), [key], "{sequence:?}");
            }
        }
    }

    #[test]
    fn control_and_alt_make_another_key() {
        for bytes in [
            &b"\x12"[..], // Ctrl-R
            b"\x13",      // Ctrl-S
            b"\x1bq",     // Alt-Q
            b"\x1b[1;5A", // Ctrl and the arrow up
            b"\x1b[5;3~", // Alt-Page Up
        ] {
            assert_eq!(keys(bytes), [], "{bytes:?}");
        }
    }

    /// None of these keeps the next key from being taken.
    #[test]
    fn unknown_sequences_mean_nothing() {
        for bytes in [
            &b"\x1b[E"[..],          // 5 on the keypad
            b"\x1b[a",               // Shift and the arrow up, on rxvt
            b"\x1bOa",               // Ctrl and the arrow up, on rxvt
            b"\x1b[[A",              // F1, on Linux's console
            b"\x1b[15~",             // F5
            b"\x1b[99999999999999~", // none
            b"\x1b[1;2;3;4R",        // a report
            b"\x1b[<0;10;10M",       // the mouse
            b"\xe4",                 // a letter of Latin-1
            "ä€\u{9b}".as_bytes(),   // characters beyond ASCII
            b"\x1b\x1b[E",           // Alt and 5 on the keypad
            b"\0\x1c\x7f\r\n\t",
        ] {
            let mut bytes = bytes.to_vec();
            assert_eq!(keys(&bytes), [], "{bytes:?}");
            bytes.push(b'q');
            assert_eq!(keys(&bytes), [Key::Char('q')], "{bytes:?}");
        }
    }

    /// `ESC [` may be Alt-[: what follows much later is a key of its own.
    #[test]
    fn the_begin_of_a_sequence_is_forgotten() {
        for begin in ["\x1b", "\x1b[", "\x1b[1;", "\x1bO", "\x1b[["] {
            let mut keys = Keys::default();
            assert!(begin.bytes().all(|byte| keys.take(byte).is_none()));
            keys.forget();
            assert_eq!(keys.take(b'q'), Some(Key::Char('q')), "{begin:?}");
        }
    }

    proptest! {
        /// Ctrl-C ends the program behind whatever bytes.
        #[test]
        fn control_c_is_always_taken(bytes in any::<Vec<u8>>()) {
            let mut keys = Keys::default();
            for byte in bytes {
                keys.take(byte);
            }
            prop_assert_eq!(keys.take(CONTROL_C), Some(Key::Interrupt));
        }
    }
}
