// SPDX-License-Identifier: GPL-2.0

//! Datagrams that are in no tunnel, and of which some begin as a tunnel's header does: their bytes are their sender's choice.

use mflow_protocol::datagram::{self, Head};

/// One of so many datagrams is disguised: several of each batch, between others.
const EVERY: u64 = 25;

/// The tunnel whose header some datagrams of the first flow begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disguise {
    Vxlan,
    /// With Ethernet inside.
    Geneve,
}

impl Disguise {
    const ALL: [Self; 2] = [Self::Vxlan, Self::Geneve];

    /// Returns the first bytes of a header without options.
    const fn header(self) -> [u8; 4] {
        match self {
            Self::Vxlan => [0x08, 0, 0, 0],
            Self::Geneve => [0, 0, 0x65, 0x58],
        }
    }

    /// Writes the header over the flow and the length, if it is this datagram's turn.
    pub(crate) fn put_on(self, sequence: u64, datagram: &mut [u8]) {
        if sequence % EVERY == EVERY - 1 {
            datagram[..4].copy_from_slice(&self.header());
        }
    }
}

/// Returns what a disguised datagram of the first flow says, or `None` if it is none, or is not as it was sent.
pub(crate) fn decode(bytes: &[u8]) -> Option<Head> {
    let (header, rest) = bytes.split_first_chunk()?;
    let is_disguised = Disguise::ALL.iter().any(|one| one.header() == *header);
    let length = u16::try_from(bytes.len()).ok().filter(|_| is_disguised)?;
    datagram::decode(&[&[0; 2], &length.to_be_bytes()[..], rest].concat())
}

#[cfg(test)]
mod tests {
    use mflow_protocol::datagram::{Pattern, MIN_BYTES};

    use super::*;

    fn sent(sequence: u64, disguise: Disguise) -> [u8; MIN_BYTES] {
        let mut buffer = [0; MIN_BYTES];
        let head = Head {
            flow: 0,
            sequence,
            sent_ns: None,
        };
        datagram::encode(&Pattern::default(), head, &mut buffer);
        disguise.put_on(sequence, &mut buffer);
        buffer
    }

    #[test]
    fn a_disguised_datagram_says_what_it_would_without() {
        for disguise in Disguise::ALL {
            let plain = sent(EVERY, disguise);
            assert!(datagram::decode(&plain).is_some() && decode(&plain).is_none());
            let mut disguised = sent(EVERY - 1, disguise);
            assert_eq!(disguised[..4], disguise.header());
            assert_eq!(datagram::decode(&disguised), None);
            let head = decode(&disguised).expect("a good datagram");
            assert_eq!((head.flow, head.sequence), (0, EVERY - 1));
            disguised[9] ^= 1;
            assert_eq!(decode(&disguised), None);
        }
    }
}
