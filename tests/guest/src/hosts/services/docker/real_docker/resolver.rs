// SPDX-License-Identifier: GPL-2.0

//! Docker's resolver in a container, which knows containers and services by their names.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use anyhow::{bail, ensure, Context as _, Result};

/// The resolver's address as containers see it: rules of the container lead from there to the daemon.
const RESOLVER: (&str, u16) = ("127.0.0.11", 53);
const ANSWER: Duration = Duration::from_secs(5);
const MOST_BYTES: usize = 512;
const HEADER_BYTES: usize = 12;
/// The type `A` and the class `IN`.
const ADDRESS_OF_INTERNET: [u8; 4] = [0, 1, 0, 1];
/// The name that is right behind the header.
const REFERENCE: [u8; 2] = [0xc0, 12];
/// The flag by which a question asks for recursion.
const RECURSION: [u8; 2] = [1, 0];

/// Returns the address that a name has in the calling thread's container.
pub(super) fn resolve(name: &str) -> Result<Ipv4Addr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(RESOLVER)?;
    socket.set_read_timeout(Some(ANSWER))?;
    let question = question(name)?;
    socket.send(&question)?;
    let mut answer = [0; MOST_BYTES];
    let count = socket.recv(&mut answer);
    let count = count.with_context(|| format!("nobody says which address {name} has"))?;
    address(&question, &answer[..count]).with_context(|| format!("{name} has no address"))
}

fn question(name: &str) -> Result<Vec<u8>> {
    // A number, flags, and how many questions and answers there are.
    let mut bytes = vec![0x4d, 0x46];
    bytes.extend(RECURSION);
    bytes.extend([0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        ensure!(!label.is_empty(), "{name} is no name");
        bytes.push(u8::try_from(label.len())?);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(ADDRESS_OF_INTERNET);
    Ok(bytes)
}

/// Reads the first answer, which comes behind the question.
fn address(question: &[u8], answer: &[u8]) -> Result<Ipv4Addr> {
    ensure!(
        answer.len() > question.len() && answer[..2] == question[..2],
        "the resolver answers something else: {answer:?}"
    );
    let failure = answer[3] & 0xf;
    ensure!(
        failure == 0 && answer[6..8] != [0, 0],
        "the resolver has no answer, and says {failure}"
    );
    // The name again, or a reference to it, then type, class, time to live, length and data.
    let rest = &answer[question.len()..];
    let name = &question[HEADER_BYTES..question.len() - ADDRESS_OF_INTERNET.len()];
    let rest = rest.strip_prefix(name).or(rest.strip_prefix(&REFERENCE));
    let data = rest.and_then(|rest| rest.strip_prefix(&ADDRESS_OF_INTERNET)?.get(4..10));
    match data {
        Some(&[0, 4, a, b, c, d]) => Ok(Ipv4Addr::new(a, b, c, d)),
        _ => bail!("the answer is of another form: {answer:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read() {
        let asked = question("web").expect("a name");
        assert_eq!(asked[HEADER_BYTES..], *b"\x03web\0\0\x01\0\x01");
        let mut answer = Vec::new();
        for name in [&b"\x03web\0"[..], &REFERENCE] {
            answer = [
                &asked,
                name,
                b"\0\x01\0\x01\0\0\x02\x58\0\x04\x0a\x4d\0\x02",
            ]
            .concat();
            answer[2..8].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1]);
            let read = address(&asked, &answer).expect("an address");
            assert_eq!(read, Ipv4Addr::new(10, 77, 0, 2));
        }
        // No such name.
        answer[3] = 0x83;
        assert!(address(&asked, &answer).is_err());
        assert!(address(&asked, &asked).is_err());
    }
}
