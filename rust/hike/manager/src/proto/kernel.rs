// SPDX-License-Identifier: GPL-2.0

//! Routes of the kernel's own as messages, and back.

use anyhow::{Context as _, Error, Result};
use mflow_hike::config::fields as library;
use mflow_hike::config::path::Mode;

use super::objects::{flavour_numbers, flavours};
use super::{given, texts, Numbered as _};
use crate::configuration::kernel::{KernelAction, MAIN_TABLE};
use crate::configuration::{fields, KernelRoute};
use crate::v1::{self, kernel_route::Does};

pub(super) fn kernel_route(name: String, route: &KernelRoute) -> v1::KernelRoute {
    let does = match route.action {
        None => Does::Encaps(v1::KernelEncaps {
            sids: texts(route.sids.as_deref().unwrap_or_default()),
            mode: v1::PathMode::from(route.mode).into(),
        }),
        Some(action) => Does::Local(v1::KernelLocal {
            action: v1::KernelAction::from(action).into(),
            next_hop: route.next_hop.map(|hop| hop.to_string()),
            lookup_table: route.lookup_table,
            vrf_table: route.vrf_table,
            flavours: flavour_numbers(route.flavours),
        }),
    };
    v1::KernelRoute {
        name,
        destination: route.destination.to_string(),
        device: route.device.clone(),
        via: route.via.map(|via| via.to_string()),
        table: (route.table != MAIN_TABLE).then_some(route.table),
        metric: route.metric,
        does: Some(does),
    }
}

impl TryFrom<v1::KernelRoute> for KernelRoute {
    type Error = Error;

    fn try_from(message: v1::KernelRoute) -> Result<Self> {
        let (encaps, local) = match message.does.context("it is encaps or local")? {
            Does::Encaps(encaps) => (Some(encaps), None),
            Does::Local(local) => (None, Some(local)),
        };
        let (sids, mode) = encaps.map(|one| (one.sids, one.mode)).unzip();
        let action = local.as_ref().map(|local| KernelAction::some(local.action));
        let local = local.unwrap_or_default();
        Ok(Self {
            destination: message.destination.parse()?,
            device: message.device,
            via: given(message.via, fields::via, None)?,
            table: given(message.table, library::table, MAIN_TABLE)?,
            metric: given(message.metric, fields::metric, None)?,
            sids: given(sids, library::sids, None)?,
            mode: Mode::or_none(mode.unwrap_or_default())?.unwrap_or_default(),
            action: action.transpose()?,
            next_hop: given(local.next_hop, fields::ip_next_hop, None)?,
            lookup_table: given(local.lookup_table, fields::lookup_table, None)?,
            vrf_table: given(local.vrf_table, fields::vrf_table, None)?,
            flavours: flavours(&local.flavours)?,
        })
    }
}
