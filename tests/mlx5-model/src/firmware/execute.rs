// SPDX-License-Identifier: GPL-2.0

//! The commands of the card.

use super::capabilities;
use super::commands::{ending, Status};
use super::field::{be16, be32, Field};
use super::layout::{
    cqc, create_rqt_in, create_tir_in, modify_rq_in, modify_rqt_in, modify_sq_in,
    modify_tir_bitmask, modify_tir_in, op, query_cq_out, query_hca_cap_out, query_issi_out,
    query_q_counter_in, query_q_counter_out, query_rq_out, query_sq_out, query_vport_state_out,
    rqc, rqtc, sqc, tirc,
};
use crate::datapath::receive::ReceiveQueue;
use crate::datapath::rss::Hashing;
use crate::datapath::transmit::SendQueue;
use crate::host::device::{Device, Tir};

/// The object's number, in the outputs of most commands that create one and in the inputs of most others.
const NUMBER: Field = Field::new(0x48, 24);
/// The interface version the model speaks: bit 1 for version 1.
const INTERFACE_VERSIONS: u64 = 1 << 1;
/// Bits of MODIFY_RQ's mask.
const CHANGES_TAGS: u64 = 1 << 1;
/// The most entries of a table of queues.
const MOST_TABLE_ENTRIES: u64 = 256;

/// The result of a command: the number of the object that it created, if any, or the status that it failed with.
type Created = Result<Option<u32>, Status>;

/// Drops the result of a command that creates nothing.
fn nothing<T>(_: T) -> Option<u32> {
    None
}

impl Device {
    /// Carries out a command and returns its output.
    pub(crate) fn execute(&mut self, input: &[u8], output_bytes: usize) -> Vec<u8> {
        let mut output = ending(Status::Ok, output_bytes);
        match self.try_execute(input, &mut output) {
            Ok(None) => {}
            Ok(Some(created)) => NUMBER.set(&mut output, created.into()),
            Err(status) => output = ending(status, output_bytes),
        }
        output.truncate(output_bytes.max(16));
        output
    }

    fn try_execute(&mut self, input: &[u8], output: &mut [u8]) -> Created {
        if input.len() < 8 {
            return Err(Status::BadInputLength);
        }
        let number = NUMBER.get32(input);
        let modifier = be16(input, 6);
        match be16(input, 0) {
            op::ENABLE_HCA
            | op::INIT_HCA
            | op::SET_HCA_CAP
            | op::SET_ISSI
            | op::QUERY_PAGES
            | op::QUERY_ADAPTER => Ok(None),
            op::MODIFY_VPORT_STATE | op::SET_DRIVER_VERSION | op::MODIFY_TIS => Ok(None),
            op::TEARDOWN_HCA | op::DISABLE_HCA => {
                self.tear_down();
                Ok(None)
            }
            op::QUERY_ISSI => {
                query_issi_out::SUPPORTED_ISSI_DW0.set(output, INTERFACE_VERSIONS);
                Ok(None)
            }
            op::QUERY_HCA_CAP => {
                let bytes = capabilities::of(modifier >> 1, &self.config);
                let place = query_hca_cap_out::CAPABILITY.of_mut(output);
                let count = bytes.len().min(place.len());
                place[..count].copy_from_slice(&bytes[..count]);
                Ok(None)
            }
            op::ACCESS_REG => self.port.access(input, output).map(nothing),
            op::QUERY_VPORT_STATE => {
                query_vport_state_out::STATE.set(output, u64::from(self.port.up));
                query_vport_state_out::ADMIN_STATE.set(output, 1);
                Ok(None)
            }
            op::QUERY_VPORT_COUNTER => {
                self.port.vport_counters(output);
                Ok(None)
            }
            op::QUERY_NIC_VPORT_CONTEXT => {
                self.port.vport_context(output);
                Ok(None)
            }
            op::MODIFY_NIC_VPORT_CONTEXT => {
                self.port.set_vport_context(input);
                Ok(None)
            }
            op::ALLOC_Q_COUNTER => self.counter_sets.add(0).map(Some),
            op::DEALLOC_Q_COUNTER => self.counter_sets.remove(number & 0xff).map(nothing),
            op::QUERY_Q_COUNTER => {
                let set = query_q_counter_in::COUNTER_SET_ID.get32(input);
                let count = *self.counter_sets.get(set)?;
                query_q_counter_out::OUT_OF_BUFFER.set(output, count);
                Ok(None)
            }
            command => self.execute_queues(command, number, input, output),
        }
    }

    /// Commands about queues and what leads to them.
    fn execute_queues(
        &mut self,
        command: u16,
        number: u32,
        input: &[u8],
        output: &mut [u8],
    ) -> Created {
        match command {
            op::ALLOC_UAR => self.doorbell_pages.add(()).map(Some),
            op::DEALLOC_UAR => self.doorbell_pages.remove(number).map(nothing),
            op::ALLOC_PD => self.protection_domains.add(()).map(Some),
            op::DEALLOC_PD => self.protection_domains.remove(number).map(nothing),
            op::ALLOC_TRANSPORT_DOMAIN => self.transport_domains.add(()).map(Some),
            op::DEALLOC_TRANSPORT_DOMAIN => self.transport_domains.remove(number).map(nothing),
            op::CREATE_TIS => self.send_interfaces.add(()).map(Some),
            op::DESTROY_TIS => self.send_interfaces.remove(number).map(nothing),
            op::CREATE_MKEY => self.keys.create(input).map(Some),
            op::DESTROY_MKEY => self.keys.destroy(number).map(nothing),
            op::CREATE_EQ => self
                .events
                .create_event_queue(input, self.config.vectors)
                .map(Some),
            op::DESTROY_EQ => self.events.event_queues.remove(number & 0xff).map(nothing),
            op::CREATE_CQ => self.events.create_completion_queue(input).map(Some),
            op::DESTROY_CQ => self.events.destroy_completion_queue(number).map(nothing),
            op::MODIFY_CQ => self.events.completion_queues.get(number).map(nothing),
            op::QUERY_CQ => {
                let producer = self.events.completion_queues.get(number)?.producer();
                cqc::PRODUCER_COUNTER
                    .set(query_cq_out::CQ_CONTEXT.of_mut(output), u64::from(producer));
                Ok(None)
            }
            op::CREATE_RQ => self
                .receive_queues
                .add(ReceiveQueue::create(input, &self.events)?)
                .map(Some),
            op::MODIFY_RQ => {
                let queue = self.receive_queues.get_mut(number)?;
                let context = modify_rq_in::CTX.of(input);
                let state = queue
                    .state
                    .go(modify_rq_in::RQ_STATE.get(input), rqc::STATE.get(context))?;
                queue.set_state(state);
                if modify_rq_in::MODIFY_BITMASK.get(input) & CHANGES_TAGS != 0 {
                    queue.keeps_tags = rqc::VSD.is_set(context);
                }
                Ok(None)
            }
            op::QUERY_RQ => {
                let state = self.receive_queues.get(number)?.state;
                rqc::STATE.set(query_rq_out::RQ_CONTEXT.of_mut(output), state as u64);
                Ok(None)
            }
            op::DESTROY_RQ => self.receive_queues.remove(number).map(nothing),
            op::CREATE_SQ => self
                .send_queues
                .add(SendQueue::create(input, &self.events)?)
                .map(Some),
            op::MODIFY_SQ => {
                let queue = self.send_queues.get_mut(number)?;
                let to = sqc::STATE.get(modify_sq_in::CTX.of(input));
                let state = queue.state.go(modify_sq_in::SQ_STATE.get(input), to)?;
                queue.set_state(state);
                Ok(None)
            }
            op::QUERY_SQ => {
                let state = self.send_queues.get(number)?.state;
                sqc::STATE.set(query_sq_out::SQ_CONTEXT.of_mut(output), state as u64);
                Ok(None)
            }
            op::DESTROY_SQ => self.send_queues.remove(number).map(nothing),
            op::CREATE_RQT => {
                let table = queue_table(create_rqt_in::RQT_CONTEXT.of(input))?;
                self.queue_tables.add(table).map(Some)
            }
            op::MODIFY_RQT => {
                *self.queue_tables.get_mut(number)? = queue_table(modify_rqt_in::CTX.of(input))?;
                Ok(None)
            }
            op::DESTROY_RQT => self.queue_tables.remove(number).map(nothing),
            op::CREATE_TIR => self
                .tirs
                .add(Tir::of(create_tir_in::CTX.of(input)))
                .map(Some),
            op::MODIFY_TIR => {
                let tir = self.tirs.get_mut(number)?;
                if modify_tir_bitmask::HASH.is_set(modify_tir_in::BITMASK.of(input)) {
                    tir.hashing = Hashing::of(modify_tir_in::CTX.of(input));
                }
                Ok(None)
            }
            op::DESTROY_TIR => self.tirs.remove(number).map(nothing),
            _ => self.execute_steering(command, input),
        }
    }

    /// Commands about flow tables, and unknown ones.
    fn execute_steering(&mut self, command: u16, input: &[u8]) -> Created {
        match command {
            op::CREATE_FLOW_TABLE => self.steering.create_table(input).map(Some),
            op::CREATE_FLOW_GROUP => self.steering.create_group(input).map(Some),
            op::DESTROY_FLOW_TABLE => self.steering.destroy_table(input).map(nothing),
            op::SET_FLOW_TABLE_ROOT => self.steering.set_root(input).map(nothing),
            op::DESTROY_FLOW_GROUP => self.steering.destroy_group(input).map(nothing),
            op::SET_FLOW_TABLE_ENTRY => self.steering.set_rule(input).map(nothing),
            op::DELETE_FLOW_TABLE_ENTRY => self.steering.delete_rule(input).map(nothing),
            _ => {
                self.unknown_commands += 1;
                // Unless the mode is strict, an unknown command succeeds.
                if self.config.strict {
                    Err(Status::BadOperation)
                } else {
                    Ok(None)
                }
            }
        }
    }
}

/// Reads the table of queues out of its context.
fn queue_table(context: &[u8]) -> Result<Vec<u32>, Status> {
    let count = rqtc::RQT_ACTUAL_SIZE.get(context);
    if count == 0 || count > MOST_TABLE_ENTRIES {
        return Err(Status::BadParameter);
    }
    let list = rqtc::RQ_NUM.of(context);
    // CAST: at most 256.
    Ok((0..count as usize)
        .map(|index| be32(list, index * 4) & 0xff_ffff)
        .collect())
}

impl Tir {
    fn of(context: &[u8]) -> Self {
        Self {
            table: (tirc::DISP_TYPE.get(context) == 1).then(|| tirc::INDIRECT_TABLE.get32(context)),
            queue: tirc::INLINE_RQN.get32(context),
            hashing: Hashing::of(context),
        }
    }
}
