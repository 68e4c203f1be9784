// SPDX-License-Identifier: GPL-2.0

//! The way to the module by netlink: its generic family (`c-shims/netlink/mflow.yaml`) has the texts of the files in debugfs, also where
//! the kernel is locked down. Refusals are answered with the module's own sentence.

use std::cell::Cell;
use std::io;
use std::path::Path;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, ErrorMessage, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable, Nla as _, NlasIterator, Parseable as _,
    ParseableParametrized, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_REQUEST,
};
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;

use super::changes::Change;
use super::debugfs::not_loaded;
use super::{Files, Refused, Setting, Unreachable};

const FAMILY: &str = "mflow";
const VERSION: u8 = 1;
/// Numbers of `c-shims/netlink/mflow_netlink.h`, which a test compares.
const CMD_GET: u8 = 1;
const CMD_SET: u8 = 2;
const CMD_CHANGE: u8 = 3;
/// The group of those who listen to changes of flows.
const GROUP: &str = "flows";
/// The most messages that are read in a row.
const MOST_READS: usize = 64;
const FILE_NAME: u16 = 1;
const FILE_TEXT: u16 = 2;
/// `NLMSGERR_ATTR_MSG` of linux/netlink.h.
const ACK_SENTENCE: u16 = 1;
/// The bytes of a message's header, and what parts of messages are aligned to.
const HEADER_BYTES: usize = 16;
const ALIGNMENT: usize = 4;

/// The family of the loaded module.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    family: u16,
    group: Option<u32>,
    requests: Cell<u32>,
}

/// The changes of flows that were told.
#[derive(Debug, Default)]
pub struct Told {
    /// The changes.
    pub changes: Vec<Change>,
    /// True if the kernel had no room for more, so that some were not told.
    pub has_overflowed: bool,
}

/// A message of the family: the number of a command, and attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    command: u8,
    attributes: Vec<DefaultNla>,
}

/// The failure of a request.
#[derive(Debug)]
struct Failure {
    error: io::Error,
    /// The sentence of the one who has refused it.
    said: Option<String>,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self { error, said: None }
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        io::Error::other(error.to_string()).into()
    }
}

/// The answer to a request: its messages, and what was remarked on it.
#[derive(Debug)]
struct Answer<M> {
    messages: Vec<M>,
    said: Option<String>,
}

impl Message {
    /// Returns a request about a file.
    fn about(command: u8, name: &str, text: Option<&str>) -> Self {
        let string = |kind, text: &str| {
            let mut value = text.as_bytes().to_vec();
            value.push(0);
            DefaultNla::new(kind, value)
        };
        let name = string(FILE_NAME, name);
        let text = text.map(|text| string(FILE_TEXT, text));
        Self {
            command,
            attributes: Iterator::chain([name].into_iter(), text).collect(),
        }
    }

    /// Returns the bytes of its text, if it has one.
    fn text(&self) -> Option<Vec<u8>> {
        let mut all = self.attributes.iter();
        all.find(|one| one.kind() == FILE_TEXT).map(string_of)
    }
}

/// Returns the bytes of an attribute in front of the NUL that ends them.
fn string_of(attribute: &DefaultNla) -> Vec<u8> {
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    let end = bytes.iter().position(|byte| *byte == 0);
    bytes.truncate(end.unwrap_or(bytes.len()));
    bytes
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        FAMILY
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        VERSION
    }
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Message {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        let attributes = NlasIterator::new(bytes);
        let attributes = attributes.map(|one| one.and_then(|one| DefaultNla::parse(&one)));
        Ok(Self {
            command: header.cmd,
            attributes: attributes.collect::<Result<_, _>>()?,
        })
    }
}

/// Returns the sentence of an acknowledgement.
fn sentence(header: &NetlinkHeader, error: &ErrorMessage) -> Option<String> {
    if header.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let request = &error.header;
    let length = if header.flags & NLM_F_CAPPED != 0 {
        HEADER_BYTES
    } else {
        let length = request.first_chunk().copied().map(u32::from_ne_bytes)?;
        usize::try_from(length).ok()?
    };
    let attributes = request.get(length.next_multiple_of(ALIGNMENT)..)?;
    let mut attributes = NlasIterator::new(attributes).flatten();
    let found = attributes.find(|one| one.kind() == ACK_SENTENCE)?;
    let found = DefaultNla::parse(&found).ok()?;
    Some(String::from_utf8_lossy(&string_of(&found)).into_owned())
}

/// Reads the messages of a datagram. Returns true if the answer is complete with it.
fn read_messages<M>(datagram: &[u8], answer: &mut Answer<M>) -> Result<bool, Failure>
where
    M: NetlinkDeserializable,
{
    let mut left = datagram;
    while !left.is_empty() {
        let message = NetlinkMessage::<M>::deserialize(left)?;
        let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
        let length = length.max(HEADER_BYTES).next_multiple_of(ALIGNMENT);
        left = left.get(length..).unwrap_or_default();
        match message.payload {
            NetlinkPayload::Error(error) => {
                let said = sentence(&message.header, &error);
                if error.code.is_some() {
                    let error = error.to_io();
                    return Err(Failure { error, said });
                }
                answer.said = said;
                return Ok(true);
            }
            NetlinkPayload::Done(done) if done.code < 0 => {
                let error = io::Error::from_raw_os_error(-done.code);
                return Err(error.into());
            }
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::InnerMessage(message) => answer.messages.push(message),
            _ => {}
        }
    }
    Ok(false)
}

impl Netlink {
    /// Finds the family; there is none if the module has none, or another network namespace is not the first one.
    pub fn open() -> Option<Self> {
        Self::find().ok()
    }

    fn find() -> Result<Self, Failure> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        // The kernel has answered when a request has been sent, and goes on with a list when a part of it has been read.
        socket.set_non_blocking(true)?;
        let mut netlink = Self {
            socket,
            family: 0,
            group: None,
            requests: Cell::new(0),
        };
        let request = GenlMessage::from_payload(GenlCtrl {
            cmd: GenlCtrlCmd::GetFamily,
            nlas: vec![GenlCtrlAttrs::FamilyName(FAMILY.to_owned())],
        });
        let answer = netlink.ask(request, NLM_F_ACK)?;
        let nlas = answer.messages.iter().flat_map(|one| &one.payload.nlas);
        netlink.group = nlas.clone().find_map(group);
        let mut families = nlas.filter_map(|one| match one {
            GenlCtrlAttrs::FamilyId(number) => Some(*number),
            _ => None,
        });
        netlink.family = families
            .next()
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(netlink)
    }

    /// Joins those who are told of changes of flows. No file can be read afterwards: answers would come among the notifications.
    pub fn listen(&self) -> Result<(), Unreachable> {
        let group = self.group.ok_or_else(|| not_loaded(Path::new("/")))?;
        let joined = self.socket.add_membership(group);
        joined.map_err(|error| unreachable(error.into()))
    }

    /// Returns what was told since the last call, without waiting. There may be more at once.
    pub fn changes(&self) -> Result<Told, Unreachable> {
        let mut told = Told::default();
        for _ in 0..MOST_READS {
            let mut answer = Answer::<GenlMessage<Message>> {
                messages: Vec::new(),
                said: None,
            };
            let datagram = match self.socket.recv_from_full() {
                Ok((datagram, _)) => datagram,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::AGAIN) => break,
                    Some(Errno::INTR) => continue,
                    Some(Errno::NOBUFS) => {
                        told.has_overflowed = true;
                        continue;
                    }
                    _ => return Err(unreachable(error.into())),
                },
            };
            read_messages(&datagram, &mut answer).map_err(unreachable)?;
            let messages = answer.messages.iter().map(|one| &one.payload);
            let messages = messages.filter(|one| one.command == CMD_CHANGE);
            told.changes
                .extend(messages.filter_map(|one| Change::of(&one.attributes)));
        }
        Ok(told)
    }

    /// Sends a request, and returns the answer.
    fn ask<M>(&self, request: GenlMessage<M>, flags: u16) -> Result<Answer<GenlMessage<M>>, Failure>
    where
        GenlMessage<M>: NetlinkSerializable + NetlinkDeserializable,
    {
        self.requests.set(self.requests.get().wrapping_add(1));
        let payload = NetlinkPayload::InnerMessage(request);
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.requests.get();
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answer = Answer {
            messages: Vec::new(),
            said: None,
        };
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            if read_messages(&datagram, &mut answer)? {
                return Ok(answer);
            }
        }
    }

    fn ask_about(
        &self,
        message: Message,
        flags: u16,
    ) -> Result<Answer<GenlMessage<Message>>, Failure> {
        let mut message = GenlMessage::from_payload(message);
        message.set_resolved_family_id(self.family);
        self.ask(message, flags)
    }
}

/// Returns the number of the group of flows, if it is among these attributes.
fn group(nla: &GenlCtrlAttrs) -> Option<u32> {
    let GenlCtrlAttrs::McastGroups(groups) = nla else {
        return None;
    };
    let is_ours = |nla: &McastGrpAttrs| matches!(nla, McastGrpAttrs::Name(name) if name == GROUP);
    let mut groups = groups.iter();
    let group = groups.find(|group| group.iter().any(is_ours))?;
    group.iter().find_map(|nla| match nla {
        McastGrpAttrs::Id(number) => Some(*number),
        McastGrpAttrs::Name(_) => None,
    })
}

/// Returns the reason for a failure that is not about a value.
fn unreachable(failure: Failure) -> Unreachable {
    match Errno::from_io_error(&failure.error) {
        Some(Errno::PERM) => Unreachable::NotRoot,
        // It was unloaded just now.
        Some(Errno::NOENT | Errno::OPNOTSUPP) => not_loaded(Path::new("/")),
        _ => Unreachable::Other {
            path: format!("the netlink family {FAMILY}"),
            error: failure.error,
        },
    }
}

impl Files for Netlink {
    fn read(&self, file: &'static str) -> Result<String, Unreachable> {
        let request = Message::about(CMD_GET, file, None);
        let answer = self.ask_about(request, NLM_F_DUMP).map_err(unreachable)?;
        let parts = answer.messages.iter().filter_map(|one| one.payload.text());
        let text: Vec<u8> = parts.flatten().collect();
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn write(&self, setting: &Setting) -> Result<Vec<String>, Refused> {
        let (name, value) = (setting.name(), setting.value());
        let request = Message::about(CMD_SET, name, Some(&value));
        match self.ask_about(request, NLM_F_ACK) {
            Ok(answer) => Ok(answer.said.into_iter().collect()),
            Err(Failure {
                said: Some(said), ..
            }) => Err(Refused::Value(said)),
            Err(failure) => match Errno::from_io_error(&failure.error) {
                Some(Errno::PERM | Errno::NOENT | Errno::OPNOTSUPP) => {
                    Err(unreachable(failure).into())
                }
                _ => {
                    let error = failure.error;
                    let said = format!("{name}: the module refuses {value}: {error}");
                    Err(Refused::Value(said))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::changes;
    use super::*;

    const HEADER: &str = include_str!("../../../../c-shims/netlink/mflow_netlink.h");

    /// Returns the number of a name in the header's enums, which begin with 1.
    fn number(wanted: &str) -> Option<usize> {
        let mut place = 0;
        for line in HEADER.lines() {
            let name = line.trim().trim_end_matches(',').trim_end_matches(" = 1");
            place = if name.ends_with('{') { 0 } else { place + 1 };
            if name == wanted {
                return Some(place);
            }
        }
        None
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        for (name, expected) in [
            ("MFLOW_CMD_GET", usize::from(CMD_GET)),
            ("MFLOW_CMD_SET", usize::from(CMD_SET)),
            ("MFLOW_CMD_CHANGE_NTF", usize::from(CMD_CHANGE)),
            ("MFLOW_A_FILE_NAME", usize::from(FILE_NAME)),
            ("MFLOW_A_FILE_TEXT", usize::from(FILE_TEXT)),
            ("MFLOW_A_CHANGE_KIND", usize::from(changes::KIND)),
            ("MFLOW_A_CHANGE_DEVICE", usize::from(changes::DEVICE)),
            ("MFLOW_A_CHANGE_QUEUE", usize::from(changes::QUEUE)),
            ("MFLOW_A_CHANGE_PROTOCOL", usize::from(changes::PROTOCOL)),
            (
                "MFLOW_A_CHANGE_FROM_ADDRESS",
                usize::from(changes::FROM_ADDRESS),
            ),
            ("MFLOW_A_CHANGE_FROM_PORT", usize::from(changes::FROM_PORT)),
            (
                "MFLOW_A_CHANGE_TO_ADDRESS",
                usize::from(changes::TO_ADDRESS),
            ),
            ("MFLOW_A_CHANGE_TO_PORT", usize::from(changes::TO_PORT)),
            ("MFLOW_A_CHANGE_CPU", usize::from(changes::CPU)),
            ("MFLOW_A_CHANGE_PPS", usize::from(changes::PPS)),
            ("MFLOW_A_CHANGE_REASON", usize::from(changes::REASON)),
            ("MFLOW_A_CHANGE_LOST", usize::from(changes::LOST)),
        ] {
            assert_eq!(number(name), Some(expected), "{name}");
        }
        assert!(HEADER.contains(&format!("MFLOW_FAMILY_NAME\t\"{FAMILY}\"")));
        assert!(HEADER.contains(&format!("MFLOW_FAMILY_VERSION\t{VERSION}\n")));
        assert!(HEADER.contains(&format!("MFLOW_MCGRP_FLOWS\t\"{GROUP}\"")));
    }

    fn bytes_of(message: Message, kind: u16) -> Vec<u8> {
        let mut message = GenlMessage::from_payload(message);
        message.set_resolved_family_id(kind);
        let payload = NetlinkPayload::InnerMessage(message);
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn answer() -> Answer<GenlMessage<Message>> {
        Answer {
            messages: Vec::new(),
            said: None,
        }
    }

    /// Returns an acknowledgement with a sentence, and a request's header, or all of the request, in front of that.
    fn acknowledgement(code: i32, flags: u16, request: &[u8], said: &str) -> Vec<u8> {
        let sentence = DefaultNla::new(ACK_SENTENCE, [said.as_bytes(), &[0]].concat());
        let mut attributes = vec![0; sentence.buffer_len()];
        sentence.emit(&mut attributes);
        let payload = [&code.to_ne_bytes()[..], request, &attributes].concat();
        let length = u32::try_from(HEADER_BYTES + payload.len()).expect("it is short");
        // Length, kind (NLMSG_ERROR), flags, sequence, port.
        [
            &length.to_ne_bytes()[..],
            &2_u16.to_ne_bytes(),
            &flags.to_ne_bytes(),
            &[0; 8],
            &payload,
        ]
        .concat()
    }

    #[test]
    fn a_text_in_parts_is_read_whole() {
        let part = |text: &str| bytes_of(Message::about(CMD_GET, "stats", Some(text)), 40);
        let mut found = answer();
        // The end of a list: its kind is 3, and its code 0.
        let done = [20, 0, 0, 0, 3, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let first = [part("late_pk"), part("ts 3\n")].concat();
        assert!(!read_messages(&first, &mut found).expect("parts"));
        assert!(read_messages(&done, &mut found).expect("the end"));
        let texts = found.messages.iter().filter_map(|one| one.payload.text());
        let text: Vec<u8> = texts.flatten().collect();
        assert_eq!(text, b"late_pkts 3\n");
    }

    #[test]
    fn the_sentence_of_a_refusal_is_found() {
        let said = "batch_pkts: allowed 1 to 4096 packets";
        let request = bytes_of(Message::about(CMD_SET, "batch_pkts", Some("0")), 40);
        let capped = NLM_F_CAPPED | NLM_F_ACK_TLVS;
        for (flags, request) in [
            (capped, &request[..HEADER_BYTES]),
            (NLM_F_ACK_TLVS, &request[..]),
        ] {
            let refusal = acknowledgement(-34, flags, request, said);
            let failure = read_messages(&refusal, &mut answer()).expect_err("it is refused");
            assert_eq!(failure.said.as_deref(), Some(said));
            assert_eq!(failure.error.raw_os_error(), Some(34));
        }
        let refusal = acknowledgement(-34, NLM_F_CAPPED, &request[..HEADER_BYTES], said);
        let failure = read_messages(&refusal, &mut answer()).expect_err("it is refused");
        assert_eq!(failure.said, None);
    }

    #[test]
    fn a_remark_comes_with_success() {
        let mut found = answer();
        let remark = "build: packets of eth0 are built by the NIC's core";
        let flags = NLM_F_CAPPED | NLM_F_ACK_TLVS;
        let bytes = acknowledgement(0, flags, &[0; HEADER_BYTES], remark);
        assert!(read_messages(&bytes, &mut found).expect("success"));
        assert_eq!(found.said.as_deref(), Some(remark));
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        let whole = bytes_of(Message::about(CMD_GET, "stats", Some("late_pkts 3\n")), 40);
        for length in [1, HEADER_BYTES - 1, whole.len() - 1] {
            let cut = read_messages(&whole[..length], &mut answer());
            assert!(cut.is_err(), "{length} bytes of {}", whole.len());
        }
    }
}
