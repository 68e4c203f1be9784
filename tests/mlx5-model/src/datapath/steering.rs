// SPDX-License-Identifier: GPL-2.0

//! Flow steering: tables of rules that lead a received frame to a TIR.
//!
//! A rule compares some bits of a 512-byte description of the frame. Groups say which bits, so a rule is kept as the words in
//! which its group has any.

use std::collections::BTreeMap;

use super::packet::{Headers, TCP, UDP};
use crate::firmware::commands::Status;
use crate::firmware::field::{be32, Field};
use crate::firmware::layout::{
    create_flow_group_in, create_flow_table_in, delete_fte_in, dest_format_struct,
    destroy_flow_group_in, destroy_flow_table_in, flow_context, flow_table_context,
    fte_match_param, fte_match_set_lyr_2_4 as outer, set_flow_table_root_in, set_fte_in,
};
use crate::firmware::objects::Objects;

/// The kind of table that received frames go through.
const RECEIVE: u64 = 0;
/// The action of a table for a frame that no rule takes: on to the next table.
const MISS_FORWARD: u64 = 1;
/// Actions of a rule.
const ACTION_DROP: u64 = 2;
const ACTION_FORWARD: u64 = 4;
/// Destinations of a rule.
const TO_TABLE: u64 = 1;
const TO_TIR: u64 = 2;
/// No way through the tables is longer than there are levels.
const MOST_STEPS: usize = 64;
/// Rules have few destinations here.
const MOST_DESTINATIONS: u64 = 64;

#[derive(Clone, Debug)]
struct Group {
    first: u32,
    last: u32,
    /// Places of words, and which bits of them count.
    mask: Vec<(usize, u32)>,
}

#[derive(Clone, Debug)]
struct Rule {
    group: u32,
    /// The value that the group's bits must have.
    value: Vec<u32>,
    drop: bool,
    flow_tag: u32,
    destinations: Vec<Destination>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    Table(u32),
    Tir(u32),
}

#[derive(Clone, Debug)]
struct Table {
    kind: u64,
    level: u64,
    next: Option<u32>,
    groups: Objects<Group>,
    rules: BTreeMap<u32, Rule>,
}

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) tir: u32,
    pub(crate) flow_tag: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Steering {
    tables: Objects<Table>,
    /// The first table, if the driver has named one.
    root: Option<u32>,
}

impl Steering {
    pub(crate) fn len(&self) -> usize {
        self.tables.len()
    }

    pub(crate) fn new() -> Self {
        Self {
            tables: Objects::new(1, 0xff_ffff),
            root: None,
        }
    }

    /// Carries out CREATE_FLOW_TABLE.
    pub(crate) fn create_table(&mut self, input: &[u8]) -> Result<u32, Status> {
        let context = create_flow_table_in::FLOW_TABLE_CONTEXT.of(input);
        let forward = flow_table_context::TABLE_MISS_ACTION.get(context) == MISS_FORWARD;
        let next = forward.then(|| flow_table_context::TABLE_MISS_ID.get32(context));
        self.tables.add(Table {
            kind: create_flow_table_in::TABLE_TYPE.get(input),
            level: flow_table_context::LEVEL.get(context),
            next,
            groups: Objects::new(1, u32::MAX),
            rules: BTreeMap::new(),
        })
    }

    /// Carries out DESTROY_FLOW_TABLE.
    pub(crate) fn destroy_table(&mut self, input: &[u8]) -> Result<(), Status> {
        let number = destroy_flow_table_in::TABLE_ID.get32(input);
        self.root = self.root.filter(|root| *root != number);
        self.tables.remove(number).map(drop)
    }

    /// Carries out SET_FLOW_TABLE_ROOT.
    pub(crate) fn set_root(&mut self, input: &[u8]) -> Result<(), Status> {
        let number = set_flow_table_root_in::TABLE_ID.get32(input);
        if self.tables.get(number)?.kind == RECEIVE {
            self.root = Some(number);
        }
        Ok(())
    }

    /// Carries out CREATE_FLOW_GROUP.
    pub(crate) fn create_group(&mut self, input: &[u8]) -> Result<u32, Status> {
        let table = self
            .tables
            .get_mut(create_flow_group_in::TABLE_ID.get32(input))?;
        let criteria = create_flow_group_in::MATCH_CRITERIA.of(input);
        let mask = (0..fte_match_param::BYTES)
            .step_by(4)
            .map(|at| (at, be32(criteria, at)))
            .filter(|(_, bits)| *bits != 0)
            .collect();
        let first = create_flow_group_in::START_FLOW_INDEX.get32(input);
        let last = create_flow_group_in::END_FLOW_INDEX.get32(input);
        if first > last {
            return Err(Status::BadParameter);
        }
        table.groups.add(Group { first, last, mask })
    }

    /// Carries out DESTROY_FLOW_GROUP.
    pub(crate) fn destroy_group(&mut self, input: &[u8]) -> Result<(), Status> {
        let table = self
            .tables
            .get_mut(destroy_flow_group_in::TABLE_ID.get32(input))?;
        table
            .groups
            .remove(destroy_flow_group_in::GROUP_ID.get32(input))
            .map(drop)
    }

    /// Carries out SET_FLOW_TABLE_ENTRY.
    pub(crate) fn set_rule(&mut self, input: &[u8]) -> Result<(), Status> {
        let table = self.tables.get_mut(set_fte_in::TABLE_ID.get32(input))?;
        let index = set_fte_in::FLOW_INDEX.get32(input);
        let context = set_fte_in::FLOW_CONTEXT.of(input);
        let number = flow_context::GROUP_ID.get32(context);
        let group = table.groups.get(number)?;
        if !(group.first..=group.last).contains(&index) {
            return Err(Status::BadParameter);
        }
        let expected = flow_context::MATCH_VALUE.of(context);
        let value = group
            .mask
            .iter()
            .map(|(at, bits)| be32(expected, *at) & bits)
            .collect();
        let action = flow_context::ACTION.get(context);
        let count = flow_context::DESTINATION_LIST_SIZE
            .get(context)
            .min(MOST_DESTINATIONS);
        let list = flow_context::DESTINATION.of(context);
        let mut destinations = Vec::new();
        if action & ACTION_FORWARD != 0 {
            for entry in list
                .chunks(dest_format_struct::BYTES)
                .take(usize::try_from(count).unwrap_or(0))
            {
                let to = dest_format_struct::DESTINATION_ID.get32(entry);
                match dest_format_struct::DESTINATION_TYPE.get(entry) {
                    TO_TABLE => destinations.push(Destination::Table(to)),
                    TO_TIR => destinations.push(Destination::Tir(to)),
                    _ => return Err(Status::BadParameter),
                }
            }
        }
        let rule = Rule {
            group: number,
            value,
            drop: action & ACTION_DROP != 0,
            flow_tag: flow_context::FLOW_TAG.get32(context),
            destinations,
        };
        table.rules.insert(index, rule);
        Ok(())
    }

    /// Carries out DELETE_FLOW_TABLE_ENTRY.
    pub(crate) fn delete_rule(&mut self, input: &[u8]) -> Result<(), Status> {
        let table = self.tables.get_mut(delete_fte_in::TABLE_ID.get32(input))?;
        let index = delete_fte_in::FLOW_INDEX.get32(input);
        table
            .rules
            .remove(&index)
            .map(drop)
            .ok_or(Status::BadResource)
    }

    /// Returns where a frame goes, if anywhere.
    pub(crate) fn find(&self, frame: &[u8], headers: &Headers) -> Option<Target> {
        let description = describe(frame, headers);
        // A driver that cannot name the first table relies on their levels.
        let lowest = || {
            let receiving = self
                .tables
                .iter()
                .filter(|(_, table)| table.kind == RECEIVE);
            receiving
                .min_by_key(|(_, table)| table.level)
                .map(|(number, _)| number)
        };
        let mut table = self.tables.get(self.root.or_else(lowest)?).ok()?;
        for _ in 0..MOST_STEPS {
            let next = match table.find(&description) {
                None => table.next?,
                Some(rule) if rule.drop => return None,
                Some(rule) => match rule.destinations.first()? {
                    Destination::Tir(tir) => {
                        return Some(Target {
                            tir: *tir,
                            flow_tag: rule.flow_tag,
                        })
                    }
                    Destination::Table(number) => *number,
                },
            };
            table = self.tables.get(next).ok()?;
        }
        None
    }
}

impl Table {
    fn find(&self, description: &[u8]) -> Option<&Rule> {
        self.rules.values().find(|rule| {
            self.groups.get(rule.group).is_ok_and(|group| {
                group
                    .mask
                    .iter()
                    .zip(&rule.value)
                    .all(|((at, bits), value)| be32(description, *at) & bits == *value)
            })
        })
    }
}

/// Fills in the fields that rules compare.
fn describe(frame: &[u8], headers: &Headers) -> [u8; fte_match_param::BYTES] {
    let mut description = [0; fte_match_param::BYTES];
    let out = fte_match_param::OUTER_HEADERS.of_mut(&mut description);
    if frame.len() < 14 {
        return description;
    }
    let mac = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
    };
    let mut set = |field: Field, value: u64| field.set(out, value);
    set(outer::DMAC_47_16, mac(&frame[..4]));
    set(outer::DMAC_15_0, mac(&frame[4..6]));
    set(outer::SMAC_47_16, mac(&frame[6..10]));
    set(outer::SMAC_15_0, mac(&frame[10..12]));
    set(outer::ETHERTYPE, u64::from(headers.ether_type));
    if let Some(tag) = headers.tag {
        set(
            if tag.service {
                outer::SVLAN_TAG
            } else {
                outer::CVLAN_TAG
            },
            1,
        );
        set(outer::FIRST_VID, u64::from(tag.control & 0xfff));
        set(outer::FIRST_PRIO, u64::from(tag.control >> 13));
    }
    let Some(ip) = headers.ip else {
        return description;
    };
    set(outer::IP_VERSION, u64::from(ip.version));
    set(outer::IP_PROTOCOL, u64::from(ip.protocol));
    set(outer::FRAG, u64::from(ip.fragment));
    if headers.ports {
        let port = |at: usize| mac(&frame[ip.payload + at..ip.payload + at + 2]);
        match ip.protocol {
            TCP => {
                set(outer::TCP_SPORT, port(0));
                set(outer::TCP_DPORT, port(2));
                set(outer::TCP_FLAGS, u64::from(frame[ip.payload + 13]));
            }
            UDP => {
                set(outer::UDP_SPORT, port(0));
                set(outer::UDP_DPORT, port(2));
            }
            _ => {}
        }
    }
    let (from, to) = ip.addresses(frame);
    for (field, address) in [
        (outer::SRC_IPV4_SRC_IPV6, from),
        (outer::DST_IPV4_DST_IPV6, to),
    ] {
        // Of the sixteen bytes, IPv4 has the last four.
        let place = &mut field.of_mut(out)[..16];
        place[16 - address.len()..].copy_from_slice(address);
    }
    description
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::datagram;

    fn table(steering: &mut Steering, level: u64, next: Option<u32>) -> u32 {
        let mut input = vec![0; create_flow_table_in::BYTES];
        let context = create_flow_table_in::FLOW_TABLE_CONTEXT.of_mut(&mut input);
        flow_table_context::LEVEL.set(context, level);
        if let Some(next) = next {
            flow_table_context::TABLE_MISS_ACTION.set(context, MISS_FORWARD);
            flow_table_context::TABLE_MISS_ID.set(context, u64::from(next));
        }
        steering.create_table(&input).unwrap()
    }

    /// Adds a group and a rule in it that compares one field.
    fn rule(steering: &mut Steering, table: u32, index: u64, field: (Field, u64), to: (u64, u32)) {
        let mut input = vec![0; create_flow_group_in::BYTES];
        create_flow_group_in::TABLE_ID.set(&mut input, u64::from(table));
        create_flow_group_in::START_FLOW_INDEX.set(&mut input, index);
        create_flow_group_in::END_FLOW_INDEX.set(&mut input, index);
        field.0.set(
            create_flow_group_in::MATCH_CRITERIA.of_mut(&mut input),
            u64::MAX,
        );
        let group = steering.create_group(&input).unwrap();
        let mut input = vec![0; set_fte_in::BYTES + dest_format_struct::BYTES];
        set_fte_in::TABLE_ID.set(&mut input, u64::from(table));
        set_fte_in::FLOW_INDEX.set(&mut input, index);
        let context = set_fte_in::FLOW_CONTEXT.of_mut(&mut input);
        flow_context::GROUP_ID.set(context, u64::from(group));
        flow_context::ACTION.set(context, ACTION_FORWARD);
        flow_context::FLOW_TAG.set(context, index);
        flow_context::DESTINATION_LIST_SIZE.set(context, 1);
        field
            .0
            .set(flow_context::MATCH_VALUE.of_mut(context), field.1);
        let list = flow_context::DESTINATION.of_mut(context);
        dest_format_struct::DESTINATION_TYPE.set(list, to.0);
        dest_format_struct::DESTINATION_ID.set(list, u64::from(to.1));
        steering.set_rule(&input).unwrap();
    }

    fn find(steering: &Steering, frame: &[u8]) -> Option<(u32, u32)> {
        let target = steering.find(frame, &Headers::parse(frame))?;
        Some((target.tir, target.flow_tag))
    }

    #[test]
    fn the_way_through_the_tables() {
        let mut steering = Steering::new();
        let last = table(&mut steering, 9, None);
        let first = table(&mut steering, 3, Some(last));
        let frame = datagram(b"", [5, 6]);
        assert_eq!(find(&steering, &frame), None);
        rule(
            &mut steering,
            last,
            4,
            (outer::IP_PROTOCOL, u64::from(UDP)),
            (TO_TIR, 77),
        );
        assert_eq!(find(&steering, &frame), Some((77, 4)));
        let other = table(&mut steering, 5, None);
        rule(
            &mut steering,
            first,
            8,
            (outer::UDP_DPORT, 6),
            (TO_TABLE, other),
        );
        assert_eq!(find(&steering, &frame), None);
        rule(&mut steering, other, 1, (outer::DMAC_15_0, 1), (TO_TIR, 78));
        assert_eq!(find(&steering, &frame), Some((78, 1)));
        assert_eq!(find(&steering, &datagram(b"", [5, 7])), Some((77, 4)));
    }

    #[test]
    fn tables_that_lead_in_a_circle_end() {
        let mut steering = Steering::new();
        let one = table(&mut steering, 1, Some(2));
        let other = table(&mut steering, 2, Some(one));
        assert_eq!((one, other), (1, 2));
        assert_eq!(find(&steering, &datagram(b"", [5, 6])), None);
    }
}
