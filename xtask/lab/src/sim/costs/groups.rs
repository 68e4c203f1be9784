// SPDX-License-Identifier: GPL-2.0

//! The groups of rows that are compared with one vanilla row each.

use serde::Serialize;

use super::rows::{Measured, NATIVE, VANILLA};
use xtask::results::row::Row;

/// Cases that measure what the hooks cost, not a path.
const OVERHEAD: &str = "overhead";

/// A row that the model says nothing about.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Skipped {
    pub(crate) case: String,
    pub(crate) mode: String,
    pub(crate) why: String,
}

impl Skipped {
    pub(crate) fn of(row: &Row, why: String) -> Self {
        Self {
            case: row.case.clone(),
            mode: row.mode.clone(),
            why,
        }
    }
}

/// The rows that are compared with one vanilla row.
pub(crate) struct Group<'a> {
    pub(crate) vanilla: &'a Row,
    pub(crate) measured: Measured,
    pub(crate) rows: Vec<(&'a Row, Measured)>,
}

impl Group<'_> {
    /// Returns the reader's cost. One that has time to spare sleeps, and is woken for a handful of packets; so of all rows the
    /// least is nearest to that of a busy one. But not of those without an overlay: an application that answers does so
    /// through it.
    pub(crate) fn least_app(&self) -> f64 {
        self.rows
            .iter()
            .filter(|(row, _)| row.mode != NATIVE)
            .map(|(_, measured)| measured.app)
            .fold(self.measured.app, f64::min)
    }
}

/// Sorts rows by what they are compared with: the vanilla row of their own case, else that of the same work.
pub(crate) fn groups<'a>(rows: &'a [Row], skipped: &mut Vec<Skipped>) -> Vec<Group<'a>> {
    let mut skip = |row: &Row, why: String| {
        skipped.push(Skipped::of(row, why));
    };
    let mut groups: Vec<Group<'a>> = Vec::new();
    for row in rows.iter().filter(|row| row.mode == VANILLA) {
        match Measured::of(row) {
            Ok(measured) => groups.push(Group {
                vanilla: row,
                measured,
                rows: Vec::new(),
            }),
            Err(why) => skip(row, why),
        }
    }
    for row in rows.iter().filter(|row| row.mode != VANILLA) {
        if row.case.starts_with(OVERHEAD) {
            skip(
                row,
                "measures what hooks cost, not how a path is cut".to_owned(),
            );
            continue;
        }
        let measured = match Measured::of(row) {
            Ok(measured) => measured,
            Err(why) => {
                skip(row, why);
                continue;
            }
        };
        let find =
            |fits: fn(&Row, &Row) -> bool| groups.iter().position(|group| fits(group.vanilla, row));
        let place = find(is_same_case).or_else(|| find(is_same_work));
        match place {
            Some(place) => groups[place].rows.push((row, measured)),
            None => skip(row, "there is no vanilla row to compare with".to_owned()),
        }
    }
    groups
}

fn is_same_case(one: &Row, other: &Row) -> bool {
    (&one.suite, &one.case, &one.nic, &one.load)
        == (&other.suite, &other.case, &other.nic, &other.load)
}

fn is_same_work(one: &Row, other: &Row) -> bool {
    let work = |row: &Row| (row.msg_bytes, row.clients, row.flows);
    work(one) == work(other)
        && (&one.proto, &one.nic, &one.load) == (&other.proto, &other.nic, &other.load)
}
