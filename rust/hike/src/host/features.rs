// SPDX-License-Identifier: GPL-2.0

//! The things that drivers can do for XDP, as the kernel says since Linux 6.3 (Documentation/netlink/specs/netdev.yaml).

use anyhow::{Context as _, Result};
use netlink_packet_core::{
    parse_u16, parse_u64, DecodeError, DefaultNla, Emitable as _, NetlinkDeserializable,
    NetlinkHeader, NetlinkSerializable, NlasIterator,
};
use netlink_sys::protocols::NETLINK_GENERIC;

use super::netlink::Netlink;

/// The family that knows the families by their names, its question, and the attributes of question and answer
/// (include/uapi/linux/genetlink.h).
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_NAME: u16 = 2;
const FAMILY_ID: u16 = 1;

/// The same of the family with the features of devices (include/uapi/linux/netdev.h).
const NETDEV: &[u8] = b"netdev\0";
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_FEATURES: u16 = 3;

/// Bytes of a message of generic netlink in front of its attributes: command, version, and two that are not used.
const HEADER_BYTES: usize = 4;
const VERSION: u8 = 1;

/// The features of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features(u64);

impl Features {
    const SENDS: u64 = 1 << 2;
    const SENDS_IN_BUFFERS: u64 = 1 << 6;

    /// Asks the kernel for those of a device in the calling thread's network namespace; `None`: this kernel does not say.
    pub(crate) fn of(index: u32) -> Result<Option<Self>> {
        let netlink = Netlink::open(NETLINK_GENERIC)?;
        let name = DefaultNla::new(FAMILY_NAME, NETDEV.to_vec());
        let families = netlink.ask(Generic::new(CONTROL, GET_FAMILY, name), 0);
        let families = match families {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            families => families.context("cannot ask for the kernel's families of netlink")?,
        };
        let id = families.iter().find_map(|one| one.find(FAMILY_ID));
        let id = id.and_then(|bytes| parse_u16(&bytes).ok());
        let id = id.context("a family of netlink has no number")?;
        let index = DefaultNla::new(DEVICE_INDEX, index.to_ne_bytes().to_vec());
        let answers = netlink.ask(Generic::new(id, GET_DEVICE, index), 0);
        let answers = answers.context("cannot ask what a driver can do for XDP")?;
        let features = answers.iter().find_map(|one| one.find(DEVICE_FEATURES));
        let features = features.and_then(|bytes| parse_u64(&bytes).ok());
        let features = features.context("the kernel does not say what a driver can do for XDP")?;
        Ok(Some(Self(features)))
    }

    /// Returns whether its driver sends frames that XDP has redirected to it.
    pub(crate) fn sends(self) -> bool {
        self.0 & Self::SENDS != 0
    }

    /// Returns whether it does so with frames in several buffers, too.
    pub(crate) fn sends_in_buffers(self) -> bool {
        self.sends() && self.0 & Self::SENDS_IN_BUFFERS != 0
    }
}

/// A message of generic netlink.
#[derive(Debug)]
struct Generic {
    family: u16,
    command: u8,
    /// The attributes, as they are in the message.
    attributes: Vec<u8>,
}

impl Generic {
    /// Returns a question with one attribute.
    fn new(family: u16, command: u8, attribute: DefaultNla) -> Self {
        let mut attributes = vec![0; attribute.buffer_len()];
        attribute.emit(&mut attributes);
        Self {
            family,
            command,
            attributes,
        }
    }

    /// Returns the value of an attribute.
    fn find(&self, kind: u16) -> Option<Vec<u8>> {
        let mut attributes = NlasIterator::new(&self.attributes[..]).flatten();
        let found = attributes.find(|attribute| attribute.kind() == kind)?;
        Some(found.value().to_vec())
    }
}

impl NetlinkSerializable for Generic {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        HEADER_BYTES + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..HEADER_BYTES].copy_from_slice(&[self.command, VERSION, 0, 0]);
        buffer[HEADER_BYTES..].copy_from_slice(&self.attributes);
    }
}

impl NetlinkDeserializable for Generic {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let Some((&[command, ..], attributes)) = payload.split_first_chunk::<HEADER_BYTES>() else {
            return Err("a message of generic netlink is too short".into());
        };
        Ok(Self {
            family: header.message_type,
            command,
            attributes: attributes.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_and_read() {
        let name = DefaultNla::new(FAMILY_NAME, NETDEV.to_vec());
        let question = Generic::new(CONTROL, GET_FAMILY, name);
        let mut bytes = vec![0; question.buffer_len()];
        question.serialize(&mut bytes);
        // The attribute's length, its kind, seven bytes of it, and one to fill up the word.
        assert_eq!(bytes[..8], [3, 1, 0, 0, 11, 0, 2, 0]);
        assert_eq!(bytes[8..], *b"netdev\0\0");
        let mut header = NetlinkHeader::default();
        header.message_type = CONTROL;
        let read = Generic::deserialize(&header, &bytes).expect("long enough");
        assert_eq!(read.find(FAMILY_NAME).as_deref(), Some(NETDEV));
        assert_eq!(read.find(FAMILY_ID), None);
        assert!(Generic::deserialize(&header, &bytes[..3]).is_err());
    }

    #[test]
    fn frames_in_buffers_are_frames() {
        let of = |bits: u64| {
            let features = Features(bits);
            (features.sends(), features.sends_in_buffers())
        };
        assert_eq!(of(0b000_0011), (false, false));
        assert_eq!(of(0b000_0111), (true, false));
        assert_eq!(of(0b100_0111), (true, true));
        assert_eq!(of(0b100_0011), (false, false));
    }
}
