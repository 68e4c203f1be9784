// SPDX-License-Identifier: GPL-2.0

//! Sessions of FTP in passive mode: the server says on the first connection at which port it waits for the second one, which has the
//! file. A firewall that lets only the first port in has to read along.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::{bail, ensure, Context as _, Result};

use super::streams::connection::accept_all;
use crate::machine::{cpu, threads};
use crate::network::netns;
use crate::network::topology::{Family, CLIENT, CONTAINER};

const PORT: u16 = 21;
const FILE_BYTES: usize = 8_000;
const PATIENCE: Duration = Duration::from_millis(2_500);

/// A server in the container.
pub(crate) struct Server {
    family: Family,
    listener: TcpListener,
}

impl Server {
    /// Returns one that listens.
    pub(crate) fn bind(family: Family) -> Result<Self> {
        let listener = netns::within(CONTAINER, || {
            Ok(TcpListener::bind((family.container(), PORT))?)
        })?;
        Ok(Self { family, listener })
    }

    /// Serves some clients that fetch so many files each, in a session of its own, and returns how many files came as they have to.
    pub(crate) fn serve(&self, clients: usize, each: u64) -> Result<u64> {
        let ((), files) = threads::beside(
            |stop| self.answer_all(stop),
            || self.fetch_all(clients, each),
        )?;
        Ok(files)
    }

    fn fetch_all(&self, clients: usize, each: u64) -> Result<u64> {
        Ok(threads::each(clients, |_| self.fetch_some(each))?
            .into_iter()
            .sum())
    }

    fn fetch_some(&self, files: u64) -> Result<u64> {
        netns::enter(CLIENT)?;
        cpu::pin(cpu::SENDER)?;
        let mut fetched = 0;
        while fetched < files {
            // One that does not come is missing, and no other is waited for.
            match fetch(self.family.container()) {
                Ok(file) if file == content() => fetched += 1,
                Ok(_) | Err(_) => break,
            }
        }
        Ok(fetched)
    }

    fn answer_all(&self, stop: &AtomicBool) -> Result<()> {
        // Sessions open sockets of their own there.
        netns::enter(CONTAINER)?;
        thread::scope(|scope| {
            accept_all(&self.listener, stop, |socket, _| {
                // A client that has given up hears nothing.
                scope.spawn(move || drop(answer(socket)));
                Ok(())
            })
        })
    }
}

/// Fetches a file in a session of its own.
fn fetch(server: IpAddr) -> Result<Vec<u8>> {
    let mut control = TcpStream::connect_timeout(&(server, PORT).into(), PATIENCE)?;
    control.set_read_timeout(Some(PATIENCE))?;
    let mut replies = BufReader::new(control.try_clone()?);
    let mut say = |line: &str, code: &str| -> Result<String> {
        if !line.is_empty() {
            control.write_all(format!("{line}\r\n").as_bytes())?;
        }
        let mut reply = String::new();
        replies.read_line(&mut reply)?;
        ensure!(reply.starts_with(code), "{line} is answered with {reply}");
        Ok(reply)
    };
    say("", "220")?;
    say("USER anonymous", "331")?;
    say("PASS guest", "230")?;
    let port = match server {
        IpAddr::V4(_) => passive_port(&say("PASV", "227")?),
        IpAddr::V6(_) => extended_port(&say("EPSV", "229")?),
    };
    let port = port.context("the reply names no port")?;
    let mut data = TcpStream::connect_timeout(&(server, port).into(), PATIENCE)?;
    data.set_read_timeout(Some(PATIENCE))?;
    say("RETR file", "150")?;
    let mut file = Vec::new();
    data.read_to_end(&mut file)?;
    say("", "226")?;
    say("QUIT", "221")?;
    Ok(file)
}

/// Reads the port in `227 Entering Passive Mode (10,0,1,2,156,64).`
fn passive_port(reply: &str) -> Option<u16> {
    let numbers = reply.split_once('(')?.1.split_once(')')?.0;
    let mut numbers = numbers.split(',').skip(4);
    let (high, low): (u16, u16) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    Some(high * 256 + low)
}

/// Reads the port in `229 Entering Extended Passive Mode (|||40000|)`.
fn extended_port(reply: &str) -> Option<u16> {
    reply.split('|').nth(3)?.parse().ok()
}

fn answer(mut control: TcpStream) -> Result<()> {
    netns::enter(CONTAINER)?;
    control.set_read_timeout(Some(PATIENCE))?;
    let own = control.local_addr()?.ip();
    let commands = BufReader::new(control.try_clone()?).lines();
    control.write_all(b"220 ready\r\n")?;
    let mut data = None;
    for line in commands {
        let line = line?;
        let reply = match line.split(' ').next().unwrap_or_default() {
            "USER" => "331 any password".to_owned(),
            "PASS" => "230 welcome".to_owned(),
            "PASV" | "EPSV" => {
                let waiting = TcpListener::bind((own, 0))?;
                let reply = entering(waiting.local_addr()?);
                data = Some(waiting);
                reply
            }
            "RETR" => {
                let waiting = data.take().context("no port was asked for")?;
                let (mut socket, _) = waiting.accept()?;
                control.write_all(b"150 it comes\r\n")?;
                socket.write_all(&content())?;
                "226 that was it".to_owned()
            }
            "QUIT" => "221 bye".to_owned(),
            _ => bail!("unknown command: {line}"),
        };
        control.write_all(format!("{reply}\r\n").as_bytes())?;
    }
    Ok(())
}

/// Returns the reply that says at which port data are waited for.
fn entering(at: SocketAddr) -> String {
    let port = at.port();
    match at.ip() {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            let [high, low] = port.to_be_bytes();
            format!("227 Entering Passive Mode ({a},{b},{c},{d},{high},{low}).")
        }
        IpAddr::V6(_) => format!("229 Entering Extended Passive Mode (|||{port}|)"),
    }
}

fn content() -> Vec<u8> {
    // CAST: the lowest byte is what counts.
    (0..FILE_BYTES).map(|place| (place / 3) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_they_are_written() {
        let v4 = entering(SocketAddr::from(([10, 0, 1, 2], 40_000)));
        assert_eq!(v4, "227 Entering Passive Mode (10,0,1,2,156,64).");
        assert_eq!(passive_port(&v4), Some(40_000));
        let v6 = entering(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 40_000)));
        assert_eq!(v6, "229 Entering Extended Passive Mode (|||40000|)");
        assert_eq!(extended_port(&v6), Some(40_000));
    }
}
