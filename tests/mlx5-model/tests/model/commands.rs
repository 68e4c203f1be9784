// SPDX-License-Identifier: GPL-2.0

//! The command interface.

use mlx5_model::firmware::field::{be64, put};
use mlx5_model::firmware::layout::{
    access_register_in, cmd_hca_cap, cmd_inter_comp_event, cmd_queue_entry, cqc, create_cq_in,
    create_mkey_in, create_rqt_in, eqe, eth_802_3_cntrs_grp_data_layout, initial_seg, mkc,
    modify_rq_in, op, per_protocol_networking_offload_caps, pmtu_reg, ppcnt_reg, query_hca_cap_out,
    query_issi_out, query_nic_vport_context_out, query_rq_out, query_vport_counter_out,
    query_vport_state_out, rqc, rqtc, traffic_counter,
};
use mlx5_model::host::device::Config;

use crate::driver::{Driver, ENTRIES, NUMBER};
use crate::queues::frame;

const BAD_OPERATION: u8 = 2;
const BAD_PARAMETER: u8 = 3;
const BAD_RESOURCE: u8 = 5;
const BAD_STATE: u8 = 9;
const BAD_INPUT_LENGTH: u8 = 0x50;

#[test]
fn the_driver_finds_what_it_needs() {
    for striding in [false, true] {
        let mut driver = Driver::new(Config {
            striding,
            ..Config::default()
        });
        let mut segment = [0; 8];
        driver.device.read(0, &mut segment);
        assert_eq!(initial_seg::CMD_INTERFACE_REV.get(&segment), 5);
        let (status, output) = driver.command(op::QUERY_ISSI, &mut [0; 16], query_issi_out::BYTES);
        assert_eq!(
            (status, query_issi_out::SUPPORTED_ISSI_DW0.get(&output) & 2),
            (0, 2)
        );
        let mut capabilities = |kind: u16| {
            let mut input = [0; 16];
            put(&mut input, 6, &(kind << 1 | 1).to_be_bytes());
            let (status, output) =
                driver.command(op::QUERY_HCA_CAP, &mut input, query_hca_cap_out::BYTES);
            assert_eq!(status, 0);
            query_hca_cap_out::CAPABILITY.of(&output).to_vec()
        };
        let general = capabilities(0);
        assert_eq!(cmd_hca_cap::PORT_TYPE.get(&general), 1);
        assert_eq!(cmd_hca_cap::STRIDING_RQ.is_set(&general), striding);
        let ethernet = capabilities(1);
        assert!(per_protocol_networking_offload_caps::CSUM_CAP.is_set(&ethernet));
        assert!(capabilities(0x20).iter().all(|byte| *byte == 0));
    }
}

#[test]
fn what_is_not_known_fails_only_in_strict_mode() {
    for strict in [true, false] {
        let mut driver = Driver::new(Config {
            strict,
            ..Config::default()
        });
        let (status, _) = driver.command(0x7ff, &mut [0; 16], 16);
        assert_eq!(status, if strict { BAD_OPERATION } else { 0 });
        assert_eq!(driver.device.unknown_commands(), 1);
    }
}

#[test]
fn objects_must_exist_and_fit() {
    let mut driver = Driver::new(Config::default());
    for operation in [
        op::DESTROY_EQ,
        op::DESTROY_CQ,
        op::DESTROY_RQ,
        op::DESTROY_SQ,
        op::DESTROY_TIR,
        op::DEALLOC_PD,
    ] {
        let mut input = [0; 16];
        NUMBER.set(&mut input, 7);
        assert_eq!(driver.command(operation, &mut input, 16).0, BAD_RESOURCE);
    }
    // A completion queue without an event queue, and one without memory.
    assert_eq!(
        driver
            .command(op::CREATE_CQ, &mut vec![0; create_cq_in::BYTES], 16)
            .0,
        BAD_RESOURCE
    );
    let events = driver.event_queue(0);
    let mut input = vec![0; create_cq_in::BYTES];
    let context = create_cq_in::CQ_CONTEXT.of_mut(&mut input);
    cqc::C_EQN_OR_APU_ELEMENT.set(context, u64::from(events.number));
    assert_eq!(
        driver.command(op::CREATE_CQ, &mut input, 16).0,
        BAD_INPUT_LENGTH
    );
    let mut input = vec![0; create_rqt_in::BYTES];
    rqtc::RQT_ACTUAL_SIZE.set(create_rqt_in::RQT_CONTEXT.of_mut(&mut input), 257);
    assert_eq!(
        driver.command(op::CREATE_RQT, &mut input, 16).0,
        BAD_PARAMETER
    );
    assert_eq!(
        driver.command(op::ALLOC_PD, &mut [0; 4], 16).0,
        BAD_INPUT_LENGTH
    );
}

#[test]
fn a_queue_goes_through_its_states_in_order() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    let mut modify = |from: u64, to: u64| {
        let mut input = vec![0; modify_rq_in::BYTES];
        modify_rq_in::RQN.set(&mut input, u64::from(path.receive.number));
        modify_rq_in::RQ_STATE.set(&mut input, from);
        rqc::STATE.set(modify_rq_in::CTX.of_mut(&mut input), to);
        let (status, _) = driver.command(op::MODIFY_RQ, &mut input, 16);
        let mut input = [0; 16];
        NUMBER.set(&mut input, u64::from(path.receive.number));
        let (_, output) = driver.command(op::QUERY_RQ, &mut input, query_rq_out::BYTES);
        (status, rqc::STATE.get(query_rq_out::RQ_CONTEXT.of(&output)))
    };
    assert_eq!(modify(0, 1), (BAD_STATE, 1), "it is ready already");
    assert_eq!(modify(1, 3), (0, 3));
    assert_eq!(
        modify(3, 1),
        (BAD_STATE, 3),
        "an error leads to reset alone"
    );
    assert_eq!(modify(3, 0), (0, 0));
    assert_eq!(modify(0, 1), (0, 1));
    assert_eq!(modify(1, 2), (BAD_PARAMETER, 1));
}

#[test]
fn the_port_is_asked_and_told() {
    let mut driver = Driver::new(Config {
        mac: [2, 3, 4, 5, 6, 7],
        ..Config::default()
    });
    let (_, output) = driver.command(
        op::QUERY_NIC_VPORT_CONTEXT,
        &mut [0; 16],
        query_nic_vport_context_out::BYTES,
    );
    assert!(output.windows(6).any(|window| window == [2, 3, 4, 5, 6, 7]));
    let (_, output) = driver.command(
        op::QUERY_VPORT_STATE,
        &mut [0; 16],
        query_vport_state_out::BYTES,
    );
    assert_eq!(query_vport_state_out::STATE.get(&output), 1);
    let mut register = |id: u64, reads: u64, mtu: u64| {
        let mut input = vec![0; access_register_in::BYTES + pmtu_reg::BYTES];
        access_register_in::REGISTER_ID.set(&mut input, id);
        access_register_in::OP_MOD.set(&mut input, reads);
        pmtu_reg::ADMIN_MTU.set(access_register_in::REGISTER_DATA.of_mut(&mut input), mtu);
        let bytes = input.len();
        let (status, output) = driver.command(op::ACCESS_REG, &mut input, bytes);
        (
            status,
            pmtu_reg::OPER_MTU.get(access_register_in::REGISTER_DATA.of(&output)),
        )
    };
    assert_eq!(register(0x5003, 1, 0), (0, 1522));
    assert_eq!(register(0x5003, 0, 9022), (0, 9022));
    assert_eq!(register(0x5003, 0, 20_000).0, BAD_PARAMETER);
    assert_eq!(register(0x5003, 1, 0), (0, 9022));
    assert_eq!(register(0x9999, 1, 0).0, BAD_PARAMETER);
}

#[test]
fn the_port_counts_what_it_sends_and_receives() {
    let (mut driver, ..) = Driver::receiver(ENTRIES);
    let mut broadcast = frame(100, 1);
    broadcast[..6].fill(0xff);
    driver.receive(&broadcast);
    driver.receive(&frame(200, 1));
    let mut input = vec![0; access_register_in::BYTES + ppcnt_reg::BYTES];
    access_register_in::REGISTER_ID.set(&mut input, 0x5008);
    access_register_in::OP_MOD.set(&mut input, 1);
    let bytes = input.len();
    let (status, output) = driver.command(op::ACCESS_REG, &mut input, bytes);
    let set = ppcnt_reg::COUNTER_SET.of(access_register_in::REGISTER_DATA.of(&output));
    let all = eth_802_3_cntrs_grp_data_layout::A_FRAMES_RECEIVED_OK_HIGH.of(set);
    let broadcasts = eth_802_3_cntrs_grp_data_layout::A_BROADCAST_FRAMES_RECEIVED_OK_HIGH.of(set);
    assert_eq!((status, be64(all, 0), be64(broadcasts, 0)), (0, 2, 1));
    let (status, output) = driver.command(
        op::QUERY_VPORT_COUNTER,
        &mut [0; 32],
        query_vport_counter_out::BYTES,
    );
    let unicast = query_vport_counter_out::RECEIVED_ETH_UNICAST.of(&output);
    assert_eq!(
        (
            status,
            traffic_counter::PACKETS.get(unicast),
            traffic_counter::OCTETS.get(unicast)
        ),
        (0, 1, 204),
        "with the check sequence"
    );
}

#[test]
fn contexts_that_the_model_does_not_know_are_refused() {
    let mut driver = Driver::new(Config::default());
    let mut input = vec![0; create_mkey_in::BYTES];
    let context = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
    mkc::ACCESS_MODE_1_0.set(context, 1);
    mkc::LOG_PAGE_SIZE.set(context, 16);
    let status = driver.command(op::CREATE_MKEY, &mut input, 16).0;
    assert_eq!(status, BAD_PARAMETER);
    let events = driver.event_queue(0);
    let mut input = vec![0; create_cq_in::BYTES + 8];
    let context = create_cq_in::CQ_CONTEXT.of_mut(&mut input);
    cqc::C_EQN_OR_APU_ELEMENT.set(context, u64::from(events.number));
    for (format, wanted) in [(0, BAD_PARAMETER), (1, 0), (2, BAD_PARAMETER), (3, 0)] {
        let context = create_cq_in::CQ_CONTEXT.of_mut(&mut input);
        cqc::CQE_COMP_EN.set(context, 1);
        cqc::MINI_CQE_RES_FORMAT.set(context, format);
        let status = driver.command(op::CREATE_CQ, &mut input, 16).0;
        assert_eq!(status, wanted, "format {format}");
    }
}

#[test]
fn what_a_driver_does_not_take_back_is_remembered() {
    let mut driver = Driver::new(Config::default());
    driver.create(op::ALLOC_PD, &mut [0; 16]);
    assert_eq!(
        (driver.device.objects(), driver.device.left_behind()),
        (1, 0)
    );
    driver.command(op::TEARDOWN_HCA, &mut [0; 16], 16);
    assert_eq!(
        (driver.device.objects(), driver.device.left_behind()),
        (0, 1)
    );
}

#[test]
fn a_command_that_is_refused_has_its_event_too() {
    let mut driver = Driver::new(Config::default());
    let events = driver.event_queue(1 << 0x0a);
    driver.arm_events(events, 0);
    // Another transport, and an input longer than any.
    use cmd_queue_entry::{BYTES, INPUT_LENGTH, OWNERSHIP, TYPE};
    for (index, (field, value)) in [(TYPE, 9), (INPUT_LENGTH, 0x7f00_0000)]
        .into_iter()
        .enumerate()
    {
        driver.machine.memory[..BYTES].fill(0);
        for (field, value) in [(TYPE, 7), (field, value), (OWNERSHIP, 1)] {
            driver.set(0, field, value);
        }
        driver.ring_for_command();
        assert_eq!(driver.command_state(), (7, 0), "bad length");
        let kinds = driver.entries(events, 2, [eqe::EVENT_TYPE]);
        assert_eq!(kinds[index], [0x0a]);
    }
    assert_eq!(driver.machine.interrupts, [1]);
}

#[test]
fn the_event_of_a_command_needs_a_queue_before_and_after() {
    let mut driver = Driver::new(Config::default());
    let events = driver.event_queue(1 << 0x0a);
    let written = |driver: &Driver, index| !eqe::OWNER.is_set(&driver.entry(events, index));
    assert!(
        !written(&driver, 0),
        "the command that created the queue is polled for"
    );
    driver.arm_events(events, 0);
    driver.create(op::ALLOC_PD, &mut [0; 16]);
    assert!(written(&driver, 0));
    let commands = cmd_inter_comp_event::COMMAND_COMPLETION_VECTOR.after(eqe::EVENT_DATA);
    let said = driver.entries(events, 1, [eqe::EVENT_TYPE, commands]);
    assert_eq!(said, [[0x0a, 1]]);
    assert_eq!(driver.machine.interrupts, [1]);
    let mut input = [0; 16];
    NUMBER.set(&mut input, u64::from(events.number));
    assert_eq!(driver.command(op::DESTROY_EQ, &mut input, 16).0, 0);
    assert!(!written(&driver, 1));
}
