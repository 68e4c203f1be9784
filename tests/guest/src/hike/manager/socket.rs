// SPDX-License-Identifier: GPL-2.0

//! The daemon's socket beside those of others.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::{ensure, Result};

use super::daemon::Place;
use crate::hike::network::{Network, INGRESS};
use crate::hike::Case;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "manager/socket",
        proves: "hiked takes its socket's place from no other daemon, program or file, says so in one sentence, and changes nothing",
        run: |_| socket(),
    }]
}

fn socket() -> Result<()> {
    let _network = Network::up()?;
    let place = Place::new(INGRESS);
    let path = place.socket().display().to_string();
    let refused = |place: &Place, expected: &str| -> Result<()> {
        let said = place.start_refused()?;
        let expected = format!("hiked: {expected}, or take another place with --socket");
        let expected = expected.replace("PATH", &path);
        ensure!(said == expected, "it says `{said}`, and not `{expected}`");
        Ok(())
    };
    // A file, and the socket of a program that is no hiked.
    fs::write(&path, "of somebody")?;
    refused(&place, "PATH is there and is no socket; remove it")?;
    ensure!(fs::read(&path)? == b"of somebody", "the file is another");
    fs::remove_file(&path)?;
    let listener = UnixListener::bind(&path)?;
    refused(&place, "another program listens at PATH; end that")?;
    UnixStream::connect(&path)?;
    // What it leaves behind is nobody's.
    drop(listener);
    let daemon = place.start()?;
    // Another daemon, whose pins are others.
    let beside = place.beside();
    refused(&beside, "another hiked has PATH; end that")?;
    ensure!(
        daemon.apply("[chains]\na = \"drop\"\n")? == 1,
        "the first one does not answer as before"
    );
    daemon.stop()?;
    ensure!(!place.socket().exists(), "its socket is still there");
    // Nor does one that was killed hold the place.
    beside.start()?.kill()?;
    let started = place.start()?;
    started.stop()
}
