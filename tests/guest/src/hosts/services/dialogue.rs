// SPDX-License-Identifier: GPL-2.0

//! Connections with data in both directions: clients ask an application in the container, and each answer says whom the application
//! has talked to.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use socket2::SockRef;

use crate::machine::{cpu, threads};
use crate::network::netns;
use crate::network::topology::CLIENT;
use crate::traffic::streams::connection::accept_all;

const CLIENTS: usize = 4;
const EACH: usize = 15;
/// The number of connections that are made.
pub(super) const DIALOGUES: u64 = (CLIENTS * EACH) as u64;
/// A question is several segments, and so is its answer.
const QUESTION_BYTES: usize = 6_000;
/// The part of an answer that says whom the application has talked to, padded with spaces.
const HEAD_BYTES: usize = 96;
const PATIENCE: Duration = Duration::from_millis(2_500);
const PLACES: i32 = 1024;

/// The number of right answers for each head.
pub(super) type Answers = BTreeMap<String, u64>;

/// An application, and the address at which clients take it to be.
pub(super) struct Dialogues {
    pub(super) at: SocketAddr,
    pub(super) application: TcpListener,
}

/// Returns what the application says of a connection from one address to another.
pub(super) fn head(from: IpAddr, to: SocketAddr) -> String {
    format!("from {from} to {to}")
}

impl Dialogues {
    /// Makes all connections, and returns the right answers.
    pub(super) fn hold(&self) -> Result<Answers> {
        SockRef::from(&self.application).listen(PLACES)?;
        let ((), answers) = threads::beside(|stop| self.answer_all(stop), || self.ask_all())?;
        Ok(answers)
    }

    fn ask_all(&self) -> Result<Answers> {
        let mut all = Answers::new();
        let answers = threads::each(CLIENTS, |place| self.ask_some(place))?;
        for (head, count) in answers.into_iter().flatten() {
            *all.entry(head).or_default() += count;
        }
        Ok(all)
    }

    fn ask_some(&self, place: usize) -> Result<Answers> {
        netns::enter(CLIENT)?;
        cpu::pin(cpu::SENDER)?;
        let mut answers = Answers::new();
        for number in 0..EACH {
            // Answers that do not come, or are wrong, are not counted.
            if let Ok(Some(head)) = self.ask(place * EACH + number) {
                *answers.entry(head).or_default() += 1;
            }
        }
        Ok(answers)
    }

    /// Returns the answer's head, or none if the rest does not fit the question.
    fn ask(&self, number: usize) -> Result<Option<String>> {
        let mut socket = TcpStream::connect_timeout(&self.at, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let question = question(number);
        socket.write_all(&question)?;
        let mut answer = vec![0; HEAD_BYTES + QUESTION_BYTES];
        socket.read_exact(&mut answer)?;
        let (head, rest) = answer.split_at(HEAD_BYTES);
        let head = String::from_utf8_lossy(head).trim_end().to_owned();
        Ok((rest == reversed(&question)).then_some(head))
    }

    fn answer_all(&self, stop: &AtomicBool) -> Result<()> {
        thread::scope(|scope| {
            accept_all(&self.application, stop, |socket, from| {
                // A client that has given up is not waited for, and asks nothing more.
                scope.spawn(move || drop(answer(socket, from.ip())));
                Ok(())
            })
        })
    }
}

fn answer(mut socket: TcpStream, from: IpAddr) -> Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut question = vec![0; QUESTION_BYTES];
    socket.read_exact(&mut question)?;
    let head = head(from, socket.local_addr()?);
    let mut answer = format!("{head:HEAD_BYTES$}").into_bytes();
    answer.extend(reversed(&question));
    Ok(socket.write_all(&answer)?)
}

/// Returns bytes that no other question has.
fn question(number: usize) -> Vec<u8> {
    // CAST: the lowest byte is what counts.
    let byte = |place: usize| (place.wrapping_mul(number * 2 + 1) >> 3) as u8;
    (0..QUESTION_BYTES).map(byte).collect()
}

fn reversed(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().rev().copied().collect()
}
