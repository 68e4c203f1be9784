// SPDX-License-Identifier: GPL-2.0

//! A record of commands as text: one a line, `CARD NAME INPUT BYTES STATUS`; for people, and to be replayed.

use std::fmt::Write as _;
use std::io;

use anyhow::{Context as _, Result};

use super::device::Done;

/// Long inputs end in zeros, which are counted instead.
const ZEROS: char = '+';

/// Writes one command of a card.
pub fn write(to: &mut impl io::Write, card: usize, done: &Done) -> io::Result<()> {
    let name = done.name.unwrap_or("UNKNOWN");
    let status = done.output.first().copied().unwrap_or(0);
    let end = done
        .input
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    let mut hex = String::with_capacity(end * 2);
    for byte in &done.input[..end] {
        let _ = write!(hex, "{byte:02x}");
    }
    writeln!(
        to,
        "{card} {name} {hex}{ZEROS}{} {} {status:#x}",
        done.input.len() - end,
        done.output.len()
    )
}

/// A command to be carried out again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The card it was for.
    pub card: usize,
    /// Its name.
    pub name: String,
    /// The bytes that the driver sent.
    pub input: Vec<u8>,
    /// The length of the output that the driver asked for.
    pub output_bytes: usize,
    /// The status that it ended with.
    pub status: u8,
}

/// Reads one line.
pub fn parse(line: &str) -> Result<Recorded> {
    let words: Vec<&str> = line.split(' ').collect();
    let [card, name, input, output_bytes, status] = words[..] else {
        anyhow::bail!("not a recorded command: {line}");
    };
    let (hex, zeros) = input.split_once(ZEROS).context("no count of zeros")?;
    let mut bytes = Vec::new();
    for at in (0..hex.len()).step_by(2) {
        bytes.push(u8::from_str_radix(
            hex.get(at..at + 2).context("half a byte")?,
            16,
        )?);
    }
    bytes.resize(bytes.len() + zeros.parse::<usize>()?, 0);
    Ok(Recorded {
        card: card.parse()?,
        name: name.to_owned(),
        input: bytes,
        output_bytes: output_bytes.parse()?,
        status: u8::from_str_radix(status.trim_start_matches("0x"), 16)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let done = Done {
            name: Some("ALLOC_PD"),
            input: vec![8, 0, 0x1f, 0, 0, 0],
            output: vec![5; 16],
        };
        let mut text = Vec::new();
        write(&mut text, 3, &done).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "3 ALLOC_PD 08001f+3 16 0x5\n");
        let read = parse(text.trim_end()).unwrap();
        assert_eq!(
            (read.card, read.input, read.output_bytes, read.status),
            (3, done.input, 16, 5)
        );
        assert!(parse("0 ALLOC_PD 08001+3 16 0x5").is_err());
    }
}
