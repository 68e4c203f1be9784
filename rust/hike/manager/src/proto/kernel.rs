// SPDX-License-Identifier: GPL-2.0

//! The hook, and routes of the kernel's own, as messages, and back.

use super::objects::{flavour_number, flavour_word, mode_number, mode_word};
use super::{number, Result};
use crate::configuration::entries::HookWord;
use crate::configuration::kernel::{KernelActionWord, KernelRouteEntry};
use crate::configuration::objects::Kind;
use crate::configuration::Problem;
use crate::v1;

pub(super) fn hook_number(hook: HookWord) -> i32 {
    let number = match hook {
        HookWord::Xdp => v1::Hook::Xdp,
        HookWord::Tcx => v1::Hook::Tcx,
    };
    number.into()
}

pub(super) fn hook(number: i32) -> Result<HookWord> {
    match v1::Hook::try_from(number) {
        Ok(v1::Hook::Unspecified | v1::Hook::Xdp) => Ok(HookWord::Xdp),
        Ok(v1::Hook::Tcx) => Ok(HookWord::Tcx),
        Err(_) => Err(Problem::new(
            [],
            format!("{number} is no hook: 0 to 2 are allowed"),
        )),
    }
}

/// The actions of files and of messages.
const ACTIONS: [(KernelActionWord, v1::KernelAction); 8] = [
    (KernelActionWord::End, v1::KernelAction::End),
    (KernelActionWord::EndX, v1::KernelAction::EndX),
    (KernelActionWord::EndT, v1::KernelAction::EndT),
    (KernelActionWord::Dx6, v1::KernelAction::EndDx6),
    (KernelActionWord::Dx4, v1::KernelAction::EndDx4),
    (KernelActionWord::Dt6, v1::KernelAction::EndDt6),
    (KernelActionWord::Dt4, v1::KernelAction::EndDt4),
    (KernelActionWord::Dt46, v1::KernelAction::EndDt46),
];

pub(super) fn kernel_route(name: &str, entry: &KernelRouteEntry) -> v1::KernelRoute {
    use v1::kernel_route::Does;
    let action = |word| {
        let mut known = ACTIONS.iter();
        known.find(|one| one.0 == word).map(|one| one.1)
    };
    let does = match entry.action {
        None => Does::Encaps(v1::KernelEncaps {
            sids: entry.sids.clone().unwrap_or_default(),
            mode: mode_number(entry.mode),
        }),
        Some(word) => Does::Local(v1::KernelLocal {
            action: action(word).unwrap_or_default().into(),
            next_hop: entry.next_hop.clone(),
            lookup_table: number(entry.lookup_table),
            vrf_table: number(entry.vrf_table),
            flavours: entry.flavours.iter().map(flavour_number).collect(),
        }),
    };
    v1::KernelRoute {
        name: name.to_owned(),
        destination: entry.destination.clone(),
        device: entry.device.clone(),
        via: entry.via.clone(),
        table: number(entry.table),
        metric: number(entry.metric),
        does: Some(does),
    }
}

pub(super) fn kernel_route_entry(route: v1::KernelRoute) -> Result<(String, KernelRouteEntry)> {
    use v1::kernel_route::Does;
    let unknown = |text: String| Problem::new([Kind::KernelRoute.section(), &route.name], text);
    let mut entry = KernelRouteEntry {
        destination: route.destination.clone(),
        device: route.device.clone(),
        via: route.via.clone(),
        table: route.table.map(i64::from),
        metric: route.metric.map(i64::from),
        ..KernelRouteEntry::default()
    };
    match &route.does {
        None => return Err(unknown("it is encaps or local".to_owned())),
        Some(Does::Encaps(encaps)) => {
            entry.sids = Some(encaps.sids.clone());
            entry.mode = mode_word(encaps.mode).map_err(unknown)?;
        }
        Some(Does::Local(local)) => {
            let known = ACTIONS.iter().find(|one| i32::from(one.1) == local.action);
            let known =
                known.ok_or_else(|| unknown("its action is a number from 1 to 8".to_owned()));
            entry.action = Some(known?.0);
            entry.next_hop.clone_from(&local.next_hop);
            entry.lookup_table = local.lookup_table.map(i64::from);
            entry.vrf_table = local.vrf_table.map(i64::from);
            let flavours = local.flavours.iter().map(|one| flavour_word(*one));
            entry.flavours = flavours
                .collect::<std::result::Result<_, _>>()
                .map_err(unknown)?;
        }
    }
    Ok((route.name, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_has_a_number() {
        let words = ACTIONS.map(|one| one.0);
        for number in 1..=8 {
            let action = v1::KernelAction::try_from(number).expect("known");
            let place = ACTIONS
                .iter()
                .position(|one| one.1 == action)
                .expect("listed");
            assert_eq!(
                words.iter().filter(|word| **word == words[place]).count(),
                1
            );
        }
        assert!(v1::KernelAction::try_from(9).is_err());
    }
}
