// SPDX-License-Identifier: GPL-2.0

//! The capabilities that the card reports: no more than the model has, and no fewer than the driver needs.

use super::field::Field;
use super::layout::{
    cmd_hca_cap as general, flow_table_fields_supported as table_fields, flow_table_nic_cap,
    flow_table_prop_layout as table, per_protocol_networking_offload_caps as ethernet,
};
use crate::host::device::Config;

const BYTES: usize = 0x1000;

const GENERAL: u16 = 0;
const ETHERNET: u16 = 1;
const FLOW_TABLE: u16 = 7;

/// Returns the capabilities of a kind; of a kind that the model knows nothing of, none.
pub(crate) fn of(kind: u16, config: &Config) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    let on = u64::from(config.striding);
    match kind {
        GENERAL => fill(
            &mut bytes,
            &[
                (general::NUM_PORTS, 1),
                (general::PORT_TYPE, 1),
                (general::ETH_NET_OFFLOADS, 1),
                (general::NIC_FLOW_TABLE, 1),
                (general::VPORT_COUNTERS, 1),
                (general::LOG_BF_REG_SIZE, 9),
                (general::LOG_PG_SZ, 12),
                (general::MAX_WQE_SZ_SQ, 1024),
                (general::MAX_WQE_SZ_RQ, 512),
                (general::MAX_TC, 1),
                (general::LOG_MAX_QP, 10),
                (general::LOG_MAX_CQ, 16),
                (general::LOG_MAX_CQ_SZ, 16),
                (general::LOG_MAX_EQ, 7),
                (general::LOG_MAX_EQ_SZ, 16),
                (general::LOG_MAX_MKEY, 16),
                (general::LOG_MAX_RQ, 10),
                (general::LOG_MAX_SQ, 11),
                (general::LOG_MAX_TIR, 10),
                (general::LOG_MAX_TIS, 10),
                (general::LOG_MAX_RQT, 10),
                // The largest table of queues for receive-side scaling: 256.
                (general::LOG_MAX_RQT_SIZE, 8),
                (general::LOG_MAX_WQ_SZ, 16),
                (general::LOG_MAX_TRANSPORT_DOMAIN, 8),
                (general::LOG_MAX_PD, 8),
                (general::LOG_MAX_VLAN_LIST, 4),
                (general::LOG_MAX_CURRENT_UC_LIST, 4),
                (general::LOG_MAX_CURRENT_MC_LIST, 4),
                // The card never asks for memory.
                (general::PAGE_REQUEST_DISABLE, 1),
                (general::BASIC_CYCLIC_RCV_WQE, 1),
                (general::VHCA_ID, 1),
                (general::CQE_COMPRESSION, u64::from(config.compression)),
                (
                    general::MINI_CQE_RESP_STRIDE_INDEX,
                    u64::from(config.compression && config.striding),
                ),
                (general::STRIDING_RQ, on),
                (general::UMR_PTR_RLKY, on),
                (general::EXT_STRIDE_NUM_RANGE, on),
                (general::LOG_MAX_KLM_LIST_SIZE, 16 * on),
            ],
        ),
        ETHERNET => fill(
            &mut bytes,
            &[
                (ethernet::CSUM_CAP, 1),
                (ethernet::VLAN_CAP, 1),
                (ethernet::MAX_LSO_CAP, 16),
                (ethernet::RSS_IND_TBL_CAP, 8),
                (ethernet::WQE_VLAN_INSERT, 1),
                // No headers have to be copied into work queue entries.
                (ethernet::WQE_INLINE_MODE, 2),
                (ethernet::REG_UMR_SQ, on),
            ],
        ),
        FLOW_TABLE => fill(
            flow_table_nic_cap::FLOW_TABLE_PROPERTIES_NIC_RECEIVE.of_mut(&mut bytes),
            &[
                (table::FT_SUPPORT, 1),
                (table::LOG_MAX_FT_SIZE, 16),
                (table::LOG_MAX_FT_NUM, 10),
                (table::LOG_MAX_FLOW, 16),
                (table::LOG_MAX_DESTINATION, 6),
                // The driver's own tables lie that deep.
                (table::MAX_FT_LEVEL, 64),
                (
                    table_fields::OUTER_IP_VERSION.after(table::FT_FIELD_SUPPORT),
                    1,
                ),
            ],
        ),
        _ => {}
    }
    bytes
}

fn fill(bytes: &mut [u8], values: &[(Field, u64)]) {
    for (field, value) in values {
        field.set(bytes, *value);
    }
}
