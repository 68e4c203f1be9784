// SPDX-License-Identifier: GPL-2.0

//! The module's netlink family, asked by hand: no client of the project is in between. Its numbers are those of
//! `c-shims/netlink/mflow_netlink.h`, and others of `linux/netlink.h` and `linux/genetlink.h`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable as _, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable, Nla as _, NlasIterator, Parseable as _, NLM_F_ACK,
    NLM_F_ACK_TLVS, NLM_F_DUMP, NLM_F_REQUEST,
};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{
    recv, send, socket, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType,
};

use crate::machine::sockopt;
use crate::network::netns;

const NAME: &str = "mflow";
const CMD_GET: u8 = 1;
const CMD_SET: u8 = 2;
const CMD_CHANGE: u8 = 3;
const FILE_NAME: u16 = 1;
const FILE_TEXT: u16 = 2;
/// The attributes of a change, in the order of their numbers, which begin with 1.
const CHANGE: [&str; 13] = [
    "kind",
    "device",
    "queue",
    "protocol",
    "from",
    "from_port",
    "to",
    "to_port",
    "cpu",
    "pps",
    "reason",
    "words",
    "lost",
];

/// The family of families, its request, and attributes of its answer.
const CONTROL: u16 = 16;
const CMD_GET_FAMILY: u8 = 3;
const FAMILY_NUMBER: u16 = 1;
const FAMILY_NAME: u16 = 2;
const FAMILY_GROUPS: u16 = 7;
const GROUP_NUMBER: u16 = 2;
/// The attribute of an acknowledgement that has a sentence.
const ACK_SENTENCE: u16 = 1;

/// The bytes of the header of each message, and of generic netlink's own.
const HEADER_BYTES: usize = 16;
const OWN_HEADER_BYTES: usize = 4;
/// More than a part of a list has.
const DATAGRAM_BYTES: usize = 64 << 10;

/// The family as one socket sees it.
pub(crate) struct Family {
    socket: OwnedFd,
    number: u16,
    group: u32,
}

/// The answer of a request that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    pub(crate) said: Option<String>,
}

/// A flow that begins to be split, or stops.
#[derive(Debug)]
pub(crate) struct Change(BTreeMap<&'static str, Vec<u8>>);

/// A message of any family.
#[derive(Clone, Debug)]
struct Message {
    kind: u16,
    command: u8,
    attributes: Vec<DefaultNla>,
}

/// The parts of an answer, and the remark of its acknowledgement.
type Answer = std::result::Result<(Vec<Message>, Option<String>), Refusal>;

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        OWN_HEADER_BYTES + self.attributes.as_slice().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..OWN_HEADER_BYTES].copy_from_slice(&[self.command, 1, 0, 0]);
        self.attributes
            .as_slice()
            .emit(&mut buffer[OWN_HEADER_BYTES..]);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let (own, attributes) = payload
            .split_at_checked(OWN_HEADER_BYTES)
            .ok_or("no header")?;
        Ok(Self {
            kind: header.message_type,
            command: own[0],
            attributes: attributes_of(attributes)?,
        })
    }
}

fn attributes_of(bytes: &[u8]) -> Result<Vec<DefaultNla>, DecodeError> {
    NlasIterator::new(bytes)
        .map(|one| DefaultNla::parse(&one?))
        .collect()
}

fn value(attribute: &DefaultNla) -> Vec<u8> {
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    bytes
}

/// Returns the bytes of a string's attribute, without the NUL behind them.
fn text(mut bytes: Vec<u8>) -> Vec<u8> {
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes
}

fn string(kind: u16, text: &str) -> DefaultNla {
    DefaultNla::new(kind, [text.as_bytes(), &[0]].concat())
}

impl Message {
    /// Returns the value of the attribute of this kind.
    fn get(&self, kind: u16) -> Option<Vec<u8>> {
        let mut all = self.attributes.iter();
        // The highest bits say that it has attributes itself.
        all.find(|one| one.kind() & 0x3fff == kind).map(value)
    }
}

fn open_socket() -> Result<OwnedFd> {
    let family = AddressFamily::Netlink;
    let flags = SockFlag::SOCK_CLOEXEC;
    let opened = socket(family, SockType::Raw, flags, SockProtocol::NetlinkGeneric)
        .context("no netlink socket")?;
    sockopt::hear_sentences(&opened)?;
    Ok(opened)
}

impl Family {
    /// Finds it in the caller's network namespace, or says why there is none.
    pub(crate) fn open() -> Result<std::result::Result<Self, Refusal>> {
        let mut family = Self {
            socket: open_socket()?,
            number: CONTROL,
            group: 0,
        };
        let (parts, _) =
            match family.ask(CMD_GET_FAMILY, vec![string(FAMILY_NAME, NAME)], NLM_F_ACK)? {
                Ok(answer) => answer,
                Err(refusal) => return Ok(Err(refusal)),
            };
        let found = parts.first().context("the kernel says nothing")?;
        let number = found.get(FAMILY_NUMBER).context("no number")?;
        family.number = u16::from_ne_bytes(number.try_into().ok().context("no number")?);
        let groups = attributes_of(&found.get(FAMILY_GROUPS).context("no groups")?)?;
        let group = attributes_of(&value(groups.first().context("no group")?))?;
        let number = group.iter().find(|one| one.kind() == GROUP_NUMBER);
        let number = value(number.context("a group without a number")?);
        family.group = u32::from_ne_bytes(number.try_into().ok().context("no number")?);
        Ok(Ok(family))
    }

    /// Returns it as if it was there in another network namespace.
    pub(crate) fn in_namespace(&self, name: &str) -> Result<Self> {
        Ok(Self {
            socket: netns::within(name, open_socket)?,
            ..*self
        })
    }

    /// Returns the text of a file.
    pub(crate) fn get(&self, name: &str) -> Result<std::result::Result<String, Refusal>> {
        self.begin_get(name)?;
        Ok(match self.answer()? {
            Ok((parts, _)) => {
                ensure!(!parts.is_empty(), "{name} has no part");
                let parts = parts.iter().map(|part| part.get(FILE_TEXT).map(text));
                let parts = parts.collect::<Option<Vec<_>>>().context("no text")?;
                Ok(String::from_utf8(parts.concat())?)
            }
            Err(refusal) => Err(refusal),
        })
    }

    /// Asks for a file, and reads no answer.
    pub(crate) fn begin_get(&self, name: &str) -> Result<()> {
        self.send(CMD_GET, vec![string(FILE_NAME, name)], NLM_F_DUMP)
    }

    /// Writes to a file. Returns what is remarked on it.
    pub(crate) fn set(
        &self,
        name: &str,
        text: &str,
    ) -> Result<std::result::Result<Option<String>, Refusal>> {
        let attributes = vec![string(FILE_NAME, name), string(FILE_TEXT, text)];
        let answer = self.ask(CMD_SET, attributes, NLM_F_ACK)?;
        Ok(answer.map(|(_, said)| said))
    }

    /// Listens to changes of flows from now on.
    pub(crate) fn listen(&self) -> Result<()> {
        sockopt::join_netlink_group(&self.socket, self.group)
    }

    /// Returns whether the socket has joined the group that the family had when it was found.
    pub(crate) fn is_listening(&self) -> Result<bool> {
        Ok(sockopt::netlink_groups(&self.socket)?.contains(&self.group))
    }

    /// Waits for the next change.
    pub(crate) fn next_change(&self, limit: Duration) -> Result<Change> {
        let until = Instant::now() + limit;
        let mut datagram = vec![0; DATAGRAM_BYTES];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut waits = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            ensure!(poll(&mut waits, timeout)? > 0, "no change is told");
            let length = recv(self.socket.as_raw_fd(), &mut datagram, MsgFlags::empty())?;
            let message = NetlinkMessage::<Message>::deserialize(&datagram[..length])?;
            if let NetlinkPayload::InnerMessage(message) = message.payload {
                if message.kind == self.number && message.command == CMD_CHANGE {
                    return Change::of(&message);
                }
            }
        }
    }

    fn ask(&self, command: u8, attributes: Vec<DefaultNla>, flags: u16) -> Result<Answer> {
        self.send(command, attributes, flags)?;
        self.answer()
    }

    fn send(&self, command: u8, attributes: Vec<DefaultNla>, flags: u16) -> Result<()> {
        let request = Message {
            kind: self.number,
            command,
            attributes,
        };
        let payload = NetlinkPayload::InnerMessage(request);
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
        message.header.flags = NLM_F_REQUEST | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(self.socket.as_raw_fd(), &bytes, MsgFlags::empty())?;
        Ok(())
    }

    /// Reads an answer to its end. The kernel has begun it when the request has been sent.
    fn answer(&self) -> Result<Answer> {
        let mut parts = Vec::new();
        let mut datagram = vec![0; DATAGRAM_BYTES];
        loop {
            let length = recv(
                self.socket.as_raw_fd(),
                &mut datagram,
                MsgFlags::MSG_DONTWAIT,
            )
            .context("no answer")?;
            let mut left = &datagram[..length];
            while !left.is_empty() {
                let message = NetlinkMessage::<Message>::deserialize(left)?;
                let length = usize::try_from(message.header.length)?.next_multiple_of(4);
                ensure!(length >= HEADER_BYTES, "a message without a length");
                left = left.get(length..).unwrap_or_default();
                match message.payload {
                    NetlinkPayload::InnerMessage(message) => parts.push(message),
                    NetlinkPayload::Done(_) => return Ok(Ok((parts, None))),
                    NetlinkPayload::Error(error) => {
                        let said = sentence(message.header.flags, &error.header)?;
                        return Ok(match error.code {
                            None => Ok((parts, said)),
                            Some(code) => Err(Refusal {
                                errno: Errno::from_raw(-code.get()),
                                said,
                            }),
                        });
                    }
                    other => bail!("the kernel says {other:?}"),
                }
            }
        }
    }
}

/// Returns the sentence behind a request that is acknowledged. Of a request that was taken, the header alone is there.
fn sentence(flags: u16, request: &[u8]) -> Result<Option<String>> {
    if flags & NLM_F_ACK_TLVS == 0 {
        return Ok(None);
    }
    let is_capped = flags & netlink_packet_core::NLM_F_CAPPED != 0;
    let length = if is_capped {
        HEADER_BYTES
    } else {
        let length = request.first_chunk().context("no request")?;
        usize::try_from(u32::from_ne_bytes(*length))?.next_multiple_of(4)
    };
    let attributes = attributes_of(request.get(length..).context("no attributes")?)?;
    let found = attributes.iter().find(|one| one.kind() == ACK_SENTENCE);
    let found = found.map(|one| String::from_utf8(text(value(one))));
    Ok(found.transpose()?)
}

impl Change {
    fn of(message: &Message) -> Result<Self> {
        let mut known = BTreeMap::new();
        for (place, name) in CHANGE.into_iter().enumerate() {
            if let Some(value) = message.get(u16::try_from(place + 1)?) {
                known.insert(name, value);
            }
        }
        Ok(Self(known))
    }

    fn raw(&self, name: &str) -> Result<&[u8]> {
        let value = self.0.get(name);
        let value = value.with_context(|| format!("a change without {name}: {self:?}"))?;
        Ok(value)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns an attribute that is a string.
    pub(crate) fn text(&self, name: &str) -> Result<String> {
        Ok(String::from_utf8(text(self.raw(name)?.to_vec()))?)
    }

    /// Returns an attribute that is a number.
    pub(crate) fn number(&self, name: &str) -> Result<u32> {
        Ok(match *self.raw(name)? {
            [a] => u32::from(a),
            [a, b] => u32::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
            _ => bail!("{name} is no number: {self:?}"),
        })
    }

    /// Returns address and port of the sender or the receiver as `flows` writes them.
    pub(crate) fn end(&self, name: &str) -> Result<String> {
        let octets = self.raw(name)?;
        let address = match (<[u8; 4]>::try_from(octets), <[u8; 16]>::try_from(octets)) {
            (Ok(octets), _) => IpAddr::from(octets),
            (_, Ok(octets)) => IpAddr::from(octets),
            _ => bail!("{name} is no address: {self:?}"),
        };
        let port = u16::try_from(self.number(&format!("{name}_port"))?)?;
        Ok(std::net::SocketAddr::new(address, port).to_string())
    }

    /// Returns whether the flow begins to be split.
    pub(crate) fn is_begin(&self) -> Result<bool> {
        match self.number("kind")? {
            0 => Ok(true),
            1 => Ok(false),
            _ => bail!("a change of an unknown kind: {self:?}"),
        }
    }
}

/// Options of `family`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The file to be read.
    name: String,
}

/// Tries to read a file, to write it, and to listen; prints the error of each, or `taken`.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let said =
        |refused: Option<Errno>| refused.map_or("taken".to_owned(), |errno| errno.to_string());
    let Ok(family) = Family::open()? else {
        bail!("there is no family {NAME}");
    };
    let got = family.get(&options.name)?.err();
    let set = family.set(&options.name, "")?.err();
    let listens = family.listen().err();
    let listens = listens.map(|error| error.downcast_ref().copied().unwrap_or(Errno::EIO));
    for refused in [got.map(|one| one.errno), set.map(|one| one.errno), listens] {
        println!("{}", said(refused));
    }
    Ok(ExitCode::SUCCESS)
}
