// SPDX-License-Identifier: GPL-2.0

//! The card's work on frames in both directions: tests give the orders, and read the results, through queues as a driver does.

use mlx5_model::datapath::checksum;
use mlx5_model::datapath::packet::{insert_tag, Headers, Tag};
use mlx5_model::firmware::field::{be32, put};
use mlx5_model::firmware::layout::completion::{
    CHECK_SUM, FRAME_BYTES, HASH_IP, HASH_L4, HAS_TAG, L2_OK, L3_OK, L3_TYPE, L4_OK, L4_TYPE,
    OPCODE, OP_OWN, QUEUE, RSS_HASH_RESULT, VLAN_INFO, WQE_COUNTER,
};
use mlx5_model::firmware::layout::err_cqe::SYNDROME;
use mlx5_model::firmware::layout::{
    control_segment, cqc, create_rqt_in, create_tir_in, ethernet_segment, modify_rq_in,
    modify_rqt_in, op, query_q_counter_in, query_q_counter_out, rqc, rqtc, rx_hash_field_select,
    tirc,
};
use mlx5_model::host::device::{Config, Receive};
use mlx5_model::host::faults::Fault;
use mlx5_model::host::testing::{datagram, packet};

use crate::driver::{Driver, Path, ENTRIES, ENTRY_BYTES, UNWRITTEN};
use crate::queues::ASKED;

const SENT: u64 = 0;
const SEND_ERROR: u64 = 13;
const LENGTH_ERROR: u64 = 1;
const SEND: u64 = 0x0a;
const LSO: u64 = 0x0e;

fn tag(service: bool) -> Tag {
    Tag {
        control: 0x6005,
        service,
    }
}

/// Returns a TCP segment with data and the ACK flag.
fn segment(payload: &[u8]) -> Vec<u8> {
    let rest = [0, 0, 0, 9, 0, 0, 0, 5, 0x50, 0x10, 1, 0, 0, 0, 0, 0];
    packet(6, [1, 2], &rest, payload)
}

#[test]
fn the_sum_is_that_of_the_internet_packet_alone() {
    let (mut driver, path, _) = Driver::receiver(ENTRIES);
    let plain = datagram(b"odd", [1, 2]);
    let mut padded = plain.clone();
    padded.extend([1, 2, 3, 4, 5]);
    let wanted = u64::from(checksum::sum(&plain[14..]));
    driver.receive(&plain);
    driver.receive(&padded);
    // The card's sum excludes a tag left in the frame; the driver adds it.
    let mut input = vec![0; modify_rq_in::BYTES];
    modify_rq_in::RQN.set(&mut input, u64::from(path.receive.number));
    modify_rq_in::RQ_STATE.set(&mut input, 1);
    modify_rq_in::MODIFY_BITMASK.set(&mut input, 2);
    let context = modify_rq_in::CTX.of_mut(&mut input);
    rqc::STATE.set(context, 1);
    rqc::VSD.set(context, 1);
    assert_eq!(driver.command(op::MODIFY_RQ, &mut input, 16).0, 0);
    let mut tagged = padded.clone();
    insert_tag(&mut tagged, tag(false));
    driver.receive(&tagged);
    let said = driver.entries(path.completions, 3, [CHECK_SUM, HAS_TAG, FRAME_BYTES]);
    let lengths = [&plain, &padded, &tagged].map(|frame| frame.len() as u64);
    assert_eq!(said, lengths.map(|bytes| [wanted, 0, bytes]));
}

#[test]
fn customer_tags_are_taken_out_and_service_tags_are_not() {
    let (mut driver, path, buffers) = Driver::receiver(ENTRIES);
    let plain = datagram(b"data", [1, 2]);
    for (index, service) in [(0, false), (1, true)] {
        let mut tagged = plain.clone();
        insert_tag(&mut tagged, tag(service));
        driver.receive(&tagged);
        let wanted = if service { &tagged } else { &plain };
        let memory = &driver.machine.memory[buffers + index * 4096..];
        assert_eq!(memory[..wanted.len()], wanted[..]);
    }
    let said = driver.entries(path.completions, 2, [HAS_TAG, VLAN_INFO]);
    assert_eq!(said, [[1, 0x6005], [0, 0]]);
    // A frame that ends inside the tag has no tag.
    let mut cut = plain[..12].to_vec();
    cut.extend([0x81, 0x00, 0x60]);
    assert_eq!(driver.receive(&cut), Receive::Taken);
    let said = driver.entries(path.completions, 3, [FRAME_BYTES]);
    assert_eq!(said[2], [15]);
}

#[test]
fn completions_tell_headers_and_whether_their_checksums_are_good() {
    let (mut driver, path, _) = Driver::receiver(ENTRIES);
    let mut bad_ip = datagram(b"data", [1, 2]);
    bad_ip[22] ^= 1;
    let mut bad_data = datagram(b"data", [1, 2]);
    bad_data[42] ^= 1;
    // IPv4 with UDP, with a segment of TCP that has data, with one that has none.
    let (frames, wanted): (Vec<_>, Vec<_>) = [
        (datagram(b"data", [1, 2]), [1, 1, 1, 2, 2]),
        (bad_data, [1, 1, 0, 2, 2]),
        (bad_ip, [1, 0, 0, 2, 2]),
        (segment(b"data"), [1, 1, 1, 2, 4]),
        (segment(b""), [1, 1, 1, 2, 3]),
    ]
    .into_iter()
    .unzip();
    for frame in frames {
        driver.receive(&frame);
    }
    let fields = [L2_OK, L3_OK, L4_OK, L3_TYPE, L4_TYPE];
    assert_eq!(driver.entries(path.completions, 5, fields), wanted);
}

#[test]
fn frames_without_a_buffer_are_counted_by_set() {
    let mut driver = Driver::new(Config::default());
    let set = driver.create(op::ALLOC_Q_COUNTER, &mut [0; 16]);
    let other = driver.create(op::ALLOC_Q_COUNTER, &mut [0; 16]);
    driver.counter_set = set;
    let path = driver.path(false, false);
    driver.post(&path, 8);
    driver.inject(Fault::NoBuffers(2));
    for _ in 0..3 {
        driver.receive(&datagram(b"data", [1, 2]));
    }
    driver.device.drop_waiting(&datagram(b"data", [1, 2]));
    for (set, count) in [(set, 3), (other, 0)] {
        let mut input = vec![0; query_q_counter_in::BYTES];
        query_q_counter_in::COUNTER_SET_ID.set(&mut input, u64::from(set));
        let (status, output) = driver.command(op::QUERY_Q_COUNTER, &mut input, 256);
        assert_eq!(
            (status, query_q_counter_out::OUT_OF_BUFFER.get(&output)),
            (0, count)
        );
    }
}

#[test]
fn flows_are_spread_over_the_queues_of_a_table_by_their_hash() {
    let mut driver = Driver::new(Config::default());
    let events = driver.event_queue(0);
    let completions = driver.completion_queue(events.number, false);
    let first = driver.receive_queue(completions.number, false);
    let second = driver.receive_queue(completions.number, false);
    let key = driver.key(0);
    let table = |numbers: [u32; 4], place: &mut [u8]| {
        rqtc::RQT_ACTUAL_SIZE.set(place, 4);
        for (index, number) in numbers.into_iter().enumerate() {
            put(rqtc::RQ_NUM.of_mut(place), index * 4, &number.to_be_bytes());
        }
    };
    let (one, two) = (first.number, second.number);
    let mut input = vec![0; create_rqt_in::BYTES + 16];
    table(
        [one, two, one, two],
        create_rqt_in::RQT_CONTEXT.of_mut(&mut input),
    );
    let queues = driver.create(op::CREATE_RQT, &mut input);
    let mut input = vec![0; create_tir_in::BYTES];
    let context = create_tir_in::CTX.of_mut(&mut input);
    tirc::DISP_TYPE.set(context, 1);
    tirc::INDIRECT_TABLE.set(context, u64::from(queues));
    tirc::RX_HASH_FN.set(context, 2);
    for index in 0..40 {
        tirc::RX_HASH_TOEPLITZ_KEY.of_mut(context)[index] = (index * 37 + 11) as u8;
    }
    let fields = tirc::RX_HASH_FIELD_SELECTOR_OUTER.of_mut(context);
    rx_hash_field_select::SELECTED_FIELDS.set(fields, 0x0f);
    let tir = driver.create(op::CREATE_TIR, &mut input);
    driver.steer_to(tir);
    for queue in [first, second] {
        let buffers = driver.pages(8);
        driver.post_at(queue, key, buffers, 8);
    }
    let mut seen = [0; 2];
    for (index, port) in (0..7).enumerate() {
        driver.receive(&datagram(b"data", [0x100 + port, 2]));
        let entry = driver.entry(completions, index as u32);
        let hash = RSS_HASH_RESULT.get(&entry);
        let queue = QUEUE.get32(&entry);
        assert_eq!(queue, if hash % 2 == 0 { one } else { two });
        let codes = [HASH_IP, HASH_L4].map(|field| field.get(&entry));
        assert_eq!(codes, [1, 2], "IPv4, UDP");
        seen[usize::from(queue == two)] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    // Another table, another queue.
    let mut input = vec![0; modify_rqt_in::BYTES + 16];
    modify_rqt_in::RQTN.set(&mut input, u64::from(queues));
    table([two; 4], modify_rqt_in::CTX.of_mut(&mut input));
    assert_eq!(driver.command(op::MODIFY_RQT, &mut input, 16).0, 0);
    driver.consume(completions, 7);
    driver.receive(&datagram(b"data", [1, 2]));
    assert_eq!(QUEUE.get32(&driver.entry(completions, 7)), two);
}

/// The work that an entry of a send queue asks for.
#[derive(Default)]
struct Request<'a> {
    operation: u64,
    checksums: bool,
    segment_bytes: u64,
    tag: Option<Tag>,
    inline: &'a [u8],
    memory: &'a [u8],
}

impl Request<'_> {
    /// Writes the entry to the beginning of the queue, and has the card work it off.
    fn send(&self, driver: &mut Driver, path: &Path) {
        let data = driver.pages(2);
        put(&mut driver.machine.memory, data, self.memory);
        let (start, ethernet) = (path.send.memory, path.send.memory + control_segment::BYTES);
        driver.set(start, control_segment::OPCODE, self.operation);
        driver.set(start, control_segment::COMPLETION_MODE, ASKED);
        for field in [ethernet_segment::L3_CHECKSUM, ethernet_segment::L4_CHECKSUM] {
            driver.set(ethernet, field, self.checksums.into());
        }
        driver.set(ethernet, ethernet_segment::MSS, self.segment_bytes);
        if let Some(tag) = self.tag {
            driver.set(ethernet, ethernet_segment::INSERT_TAG, 1);
            let (service, control) = (tag.service.into(), tag.control.into());
            driver.set(ethernet, ethernet_segment::SERVICE_TAG, service);
            driver.set(ethernet, ethernet_segment::INSERT_VLAN_TCI, control);
        } else {
            let bytes = self.inline.len() as u64;
            driver.set(ethernet, ethernet_segment::HEADER_BYTES, bytes);
        }
        let headers = ethernet + ethernet_segment::INLINE_HDR_START.byte();
        put(&mut driver.machine.memory, headers, self.inline);
        let end = (headers + self.inline.len()).next_multiple_of(16);
        let memory = end.max(ethernet + ethernet_segment::BYTES);
        driver.set_data(memory, path.key, self.memory.len() as u32, data);
        let units = (memory + 16 - start) / 16;
        driver.set(start, control_segment::LENGTH, units as u64);
        driver.send(path.send, units.div_ceil(ENTRY_BYTES / 16) as u32);
    }
}

#[test]
fn headers_come_inline_and_checksums_are_made() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    let wanted = datagram(&[7; 100], [1, 2]);
    let mut blank = wanted.clone();
    blank[24..26].fill(0);
    // As Linux leaves it: the sum of the pseudo header; the card makes all of it.
    blank[40..42].fill(0x55);
    Request {
        operation: SEND,
        checksums: true,
        inline: &blank[..18],
        memory: &blank[18..],
        ..Request::default()
    }
    .send(&mut driver, &path);
    assert_eq!(driver.machine.frames, [wanted]);
    assert_eq!(driver.entries(path.completions, 1, [OPCODE]), [[SENT]]);
}

#[test]
fn tags_are_put_in() {
    for service in [false, true] {
        let mut driver = Driver::new(Config::default());
        let path = driver.path(false, false);
        let plain = datagram(&[6; 40], [1, 2]);
        Request {
            operation: SEND,
            tag: Some(tag(service)),
            memory: &plain,
            ..Request::default()
        }
        .send(&mut driver, &path);
        let mut wanted = plain.clone();
        insert_tag(&mut wanted, tag(service));
        assert_eq!(driver.machine.frames, [wanted]);
    }
}

#[test]
fn large_segments_are_cut() {
    let large = segment(&[5; 2500]);
    let send = |segment_bytes| {
        let mut driver = Driver::new(Config::default());
        let path = driver.path(false, false);
        Request {
            operation: LSO,
            checksums: true,
            segment_bytes,
            inline: &large[..54],
            memory: &large[54..],
            ..Request::default()
        }
        .send(&mut driver, &path);
        let said = driver.entries(path.completions, 1, [OPCODE, SYNDROME]);
        (said[0], driver.machine.frames)
    };
    let (said, frames) = send(1000);
    assert_eq!(said[0], SENT);
    let lengths: Vec<_> = frames.iter().map(Vec::len).collect();
    assert_eq!(lengths, [1054, 1054, 554]);
    for (index, frame) in (0..).zip(&frames) {
        let ip = Headers::parse(frame).ip.unwrap();
        assert!(ip.is_good(frame) && ip.transport_is_good(frame));
        assert_eq!(be32(frame, 38), 9 + index * 1000, "sequence number");
    }
    let (said, frames) = send(0);
    assert_eq!(said, [SEND_ERROR, LENGTH_ERROR]);
    assert!(frames.is_empty());
}

#[test]
fn an_entry_longer_than_what_was_written_is_an_error_and_no_endless_loop() {
    let mut driver = Driver::new(Config::default());
    let mut path = driver.path(false, false);
    path.send = driver.endless_send_queue(path.completions.number);
    // Each entry claims more blocks than were written, so the card's counter would never meet the driver's.
    for entry in (0..128).step_by(16) {
        let at = path.send.memory + entry * ENTRY_BYTES;
        driver.set(at, control_segment::LENGTH, 0x3f);
    }
    driver.send(path.send, 5);
    let said = driver.entries(path.completions, 1, [OPCODE, SYNDROME]);
    assert_eq!(said, [[SEND_ERROR, LENGTH_ERROR]]);
    assert!(
        !driver.is_written(path.completions, 1),
        "the rest is gone, too"
    );
}

#[test]
fn of_large_completions_the_second_half_is_used() {
    let mut driver = Driver::new(Config::default());
    let events = driver.event_queue(0);
    let completions =
        driver.completion_queue_with(events.number, |context| cqc::CQE_SZ.set(context, 1));
    let receive = driver.receive_queue(completions.number, false);
    driver.steer(receive.number);
    let (key, buffers) = (driver.key(0), driver.pages(8));
    driver.post_at(receive, key, buffers, 8);
    let frame = datagram(b"data", [1, 2]);
    for _ in 0..2 {
        driver.receive(&frame);
    }
    for index in 0..2 {
        let at = completions.memory + index * 2 * ENTRY_BYTES;
        let (unused, entry) = driver.machine.memory[at..].split_at(ENTRY_BYTES);
        // As the driver has prepared it.
        assert!(unused[..OP_OWN.byte()].iter().all(|byte| *byte == 0));
        assert_eq!(OP_OWN.get(unused), UNWRITTEN);
        assert_eq!(FRAME_BYTES.get(entry) as usize, frame.len());
        assert_eq!(WQE_COUNTER.get(entry) as usize, index);
    }
}
