// SPDX-License-Identifier: GPL-2.0

//! The notes of generations, as other versions of `hiked` leave them.

use std::fs;

use anyhow::{ensure, Context as _, Result};
use aya::maps::{Array, Map, MapData, PerCpuHashMap};

use super::daemon::Place;
use crate::hike::network::{Network, INGRESS, LEFT};
use crate::hike::Case;

/// A note is kept in pieces of this size, its length in front.
const PIECE_BYTES: usize = 4096;
const LENGTH_BYTES: usize = 8;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "manager/old-notes",
        proves: "hiked takes over what an earlier version has let through, and of what it cannot read it changes no part",
        run: |_| {
            let _network = Network::up()?;
            takes_over()?;
            changes_no_part()
        },
    }]
}

/// Changes the first piece of a note.
fn edit(
    place: &Place,
    revision: u64,
    change: impl FnOnce(&mut [u8; PIECE_BYTES]) -> Result<()>,
) -> Result<()> {
    let note = MapData::from_pin(place.pins.join(format!("{revision}/note")))?;
    let mut note: Array<MapData, [u8; PIECE_BYTES]> = Map::from_map_data(note)?.try_into()?;
    let mut piece = note.get(&0, 0)?;
    change(&mut piece)?;
    Ok(note.set(0, piece, 0)?)
}

fn place_of(piece: &[u8], text: &str) -> Result<usize> {
    let at = piece
        .windows(text.len())
        .position(|word| word == text.as_bytes());
    at.with_context(|| format!("the note has no {text}"))
}

/// Makes the note of a generation say that its programs are of another version.
pub(super) fn make_other_version(place: &Place, revision: u64) -> Result<()> {
    const KEY: &str = "\"fingerprint\":";
    edit(place, revision, |piece| {
        let number = place_of(piece, KEY)? + KEY.len();
        let mut digits = number..piece.len();
        let end = digits.find(|&place| !piece[place].is_ascii_digit());
        // Its last digit, so that it stays a number of 64 bits.
        let digit = &mut piece[end.context("no end")? - 1];
        *digit = if *digit == b'1' { b'2' } else { b'1' };
        Ok(())
    })
}

/// The monitor of which an earlier version has counted packets with any FlowMonID.
const COLOUR: &str = ", dscp-bit = 0";

fn configuration() -> String {
    format!(
        "devices = [\"{LEFT}\"]\n[chains]\nkept = \"drop\"\n[classes]\n\"2001:db8:99::/48\" = {{ chain = \"kept\" }}\n[monitors]\n\
         old = {{ direction = \"out\"{COLOUR}, source = \"fd00::1\", sids = [\"fc00::1\"] }}\n"
    )
}

/// The numbers of SIDs that flows can have, each with a map of its own; the bytes of the key for one SID, and those of counters.
const FLOW_SIDS: usize = 16;
const KEY_BYTES: usize = 40;
const COUNTERS_BYTES: usize = 88;

/// Gives the maps of monitored flows the names that an earlier version has for keys of the same size, which mean something else.
fn name_maps_as_before(place: &Place, revision: u64) -> Result<()> {
    for sids in 1..=FLOW_SIDS {
        let pin = |name| place.pins.join(format!("{revision}/{name}_{sids}"));
        fs::rename(pin("id_flows"), pin("flows"))?;
    }
    Ok(())
}

/// Returns how many flows with one SID the earlier version counts.
fn counted_before(place: &Place, revision: u64) -> Result<usize> {
    let flows = MapData::from_pin(place.pins.join(format!("{revision}/flows_1")))?;
    let flows: PerCpuHashMap<MapData, [u8; KEY_BYTES], [u8; COUNTERS_BYTES]> =
        Map::from_map_data(flows)?.try_into()?;
    Ok(flows.keys().count())
}

fn takes_over() -> Result<()> {
    let place = Place::new(INGRESS);
    let daemon = place.start()?;
    let revision = daemon.apply(&configuration())?;
    daemon.stop()?;
    make_other_version(&place, revision)?;
    edit(&place, revision, |piece| {
        let at = place_of(piece, COLOUR)?;
        piece[at..at + COLOUR.len()].fill(b' ');
        Ok(())
    })?;
    name_maps_as_before(&place, revision)?;
    // As long as this version cannot take over, the other one goes on, and counts what it has counted.
    let daemon = place.start_with("begun=1*return->off")?;
    let stays = daemon.ask("status")?["revision"].as_u64();
    ensure!(stays == Some(revision), "there is revision {stays:?}");
    daemon.stop()?;
    let counted = counted_before(&place, revision)?;
    ensure!(counted == 1, "{counted} flows are still counted, of one");
    let daemon = place.start()?;
    let taken = daemon.ask("status")?["revision"].as_u64();
    ensure!(
        taken == Some(revision + 1),
        "revision {revision} was not taken over, there is {taken:?}"
    );
    let chains = daemon.ask("chain list")?;
    ensure!(chains["kept"] == "drop", "the chains are {chains}");
    let monitors = daemon.ask("monitor list")?;
    ensure!(
        monitors["old"]["source"] == "fd00::1",
        "the monitors are {monitors}"
    );
    let results = daemon.ask("monitor results old")?;
    ensure!(results[0]["total_packets"] == 0, "it counts {results}");
    // Nobody adds to what counts nothing.
    let said = daemon.refused("chain add more drop")?;
    let expected = "hike: monitor old: the flow has no option for the colour; give the monitor the flow-id of its packets, or a dscp-bit";
    ensure!(said == expected, "it says `{said}`");
    let left = daemon.applied(&configuration())?;
    let changes = left["changes"].as_array().map(Vec::len);
    ensure!(changes == Some(1), "not only the monitor changes: {left}");
    daemon.ask("chain add more drop")?;
    daemon.stop()
}

fn changes_no_part() -> Result<()> {
    let place = Place::new(INGRESS);
    let daemon = place.start()?;
    let revision = daemon.apply(&configuration())?;
    daemon.stop()?;
    // The first byte of the text, which is no JSON then.
    edit(&place, revision, |piece| {
        piece[LENGTH_BYTES] = b'!';
        Ok(())
    })?;
    let daemon = place.start()?;
    let said = daemon.refused("chain add more drop")?;
    let expected = format!(
        "hike: what revision {revision} is cannot be said, so no part of it can be changed; apply a whole configuration"
    );
    ensure!(said == expected, "it says `{said}`");
    ensure!(
        place.generations()? == [revision],
        "another generation has come"
    );
    daemon.apply(&configuration())?;
    daemon.ask("chain add more drop")?;
    let chains = daemon.ask("chain list")?;
    ensure!(
        chains["kept"] == "drop" && chains["more"] == "drop",
        "the chains are {chains}"
    );
    daemon.stop()
}
