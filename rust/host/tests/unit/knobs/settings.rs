// SPDX-License-Identifier: GPL-2.0

//! Knobs and device commands: tables of texts, and properties over all knobs.

use mflow_algo::algo::knobs::combinations::{Misfit, COMBINATIONS};
use mflow_algo::algo::knobs::cpulist::CpuSet;
use mflow_algo::algo::knobs::device_command::{
    DeviceCommand, DeviceName, DEVICES_ALLOWED, DEVICE_NAME_SIZE,
};
use mflow_algo::algo::knobs::{
    Knob,
    KnobError::{self, Range, Syntax},
    KnobSpec, Knobs, Limits, Mode, KNOBS,
};
use mflow_algo::algo::limits::MAX_LANES;
use proptest::prelude::*;

use crate::common::cases;

/// The defaults but for the load controller, without which all layouts can be had.
const UNCONTROLLED: Knobs = Knobs {
    load_threshold_pct: 0,
    ..Knobs::DEFAULT
};

fn set(knob: Knob, text: &str) -> Result<String, KnobError> {
    let mut knobs = UNCONTROLLED;
    let result = knobs.set(knob, text.as_bytes());
    if result.is_err() {
        assert_eq!(
            knobs, UNCONTROLLED,
            "{text:?} was refused and must change nothing"
        );
    }
    result.map(|()| knobs.get(knob).to_string())
}

#[test]
fn defaults() {
    let printed: Vec<_> = KNOBS
        .iter()
        .map(|spec| format!("{}={}", spec.name(), Knobs::default().get(spec.knob)))
        .collect();
    assert_eq!(
        printed.join(" "),
        "enabled=0 cpus= batch_pkts=256 merge_timeout_us=200 min_flow_pps=20000 scaling=path build=auto \
         join=1 layout=lane mode=mflow stages=nic+tunnel+veth load_threshold_pct=85"
    );
}

#[test]
fn accepted_and_refused_values() {
    let table: &[(Knob, &str, Result<&str, KnobError>)] = &[
        (Knob::Enabled, "1\n", Ok("1")),
        (Knob::Enabled, "0", Ok("0")),
        (Knob::Enabled, "2", Err(Range)),
        (Knob::Enabled, "", Err(Syntax)),
        (Knob::Enabled, "on", Err(Syntax)),
        (Knob::Cpus, "2-3\n", Ok("2-3")),
        (Knob::Cpus, "5,4,4", Ok("4-5")),
        (Knob::Cpus, "\n", Ok("")),
        (Knob::Cpus, " auto\n", Ok("auto")),
        (Knob::Cpus, "auto,2", Err(Syntax)),
        (Knob::Cpus, "Auto", Err(Syntax)),
        (Knob::Cpus, "0-15", Ok("0-15")),
        (Knob::Cpus, "0-16", Err(Range)),
        (Knob::Cpus, "1024", Err(Range)),
        (Knob::Cpus, "2-", Err(Syntax)),
        (Knob::BatchPkts, "1", Ok("1")),
        (Knob::BatchPkts, " 4096 ", Ok("4096")),
        (Knob::BatchPkts, "0", Err(Range)),
        (Knob::BatchPkts, "4097", Err(Range)),
        (Knob::BatchPkts, "4294967297", Err(Range)),
        (Knob::BatchPkts, "0x10", Err(Syntax)),
        (Knob::BatchPkts, "-1", Err(Syntax)),
        (Knob::BatchPkts, "+1", Err(Syntax)),
        (Knob::BatchPkts, "1 1", Err(Syntax)),
        (Knob::BatchPkts, "256\0", Err(Syntax)),
        (Knob::MergeTimeoutUs, "9", Err(Range)),
        (Knob::MergeTimeoutUs, "10", Ok("10")),
        (Knob::MergeTimeoutUs, "1000000", Ok("1000000")),
        (Knob::MergeTimeoutUs, "1000001", Err(Range)),
        (Knob::MinFlowPps, "0", Err(Range)),
        (Knob::MinFlowPps, "1", Ok("1")),
        (Knob::MinFlowPps, "10000000", Ok("10000000")),
        (Knob::MinFlowPps, "10000001", Err(Range)),
        (Knob::MinFlowPps, "20_000", Err(Syntax)),
        (Knob::Scaling, "path", Ok("path")),
        (Knob::Scaling, " device\n", Ok("device")),
        (Knob::Scaling, "Device", Err(Syntax)),
        (Knob::Scaling, "path device", Err(Syntax)),
        (Knob::Scaling, "", Err(Syntax)),
        (Knob::Build, "auto\n", Ok("auto")),
        (Knob::Build, "nic", Ok("nic")),
        (Knob::Build, " lane", Ok("lane")),
        (Knob::Build, "lanes", Err(Syntax)),
        (Knob::Build, "", Err(Syntax)),
        (Knob::Join, "0\n", Ok("0")),
        (Knob::Join, "2", Err(Range)),
        (Knob::Layout, "lane+stage\n", Ok("lane+stage")),
        (Knob::Layout, "lane", Ok("lane")),
        (Knob::Layout, "stage", Err(Syntax)),
        (Knob::Mode, "falcon-dev\n", Ok("falcon-dev")),
        (Knob::Mode, "falcon-func", Ok("falcon-func")),
        (Knob::Mode, "mflow", Ok("mflow")),
        (Knob::Mode, "falcon", Err(Syntax)),
        (Knob::Stages, "nic+veth", Ok("nic+veth")),
        (Knob::Stages, "nic", Ok("nic")),
        (Knob::Stages, "veth", Err(Syntax)),
        (Knob::Stages, "tunnel+nic", Err(Syntax)),
        (Knob::LoadThresholdPct, "0", Ok("0")),
        (Knob::LoadThresholdPct, "100\n", Ok("100")),
        (Knob::LoadThresholdPct, "101", Err(Range)),
        (Knob::LoadThresholdPct, "85%", Err(Syntax)),
    ];
    for (knob, text, expected) in table {
        assert_eq!(
            set(*knob, text),
            expected.map(str::to_owned),
            "{knob:?} {text:?}"
        );
    }
}

#[test]
fn only_what_sources_are_made_for_restarts_them() {
    let splits = UNCONTROLLED;
    let stages = Knobs {
        mode: Mode::FalconDev,
        ..splits
    };
    let restarts = |mut knobs: Knobs, knob, text: &str| {
        let before = knobs;
        knobs.set(knob, text.as_bytes()).expect("a valid value");
        assert_ne!(knobs, before);
        before.restarts_for(&knobs)
    };
    for (knob, text) in [
        (Knob::Enabled, "1"),
        (Knob::Cpus, "3"),
        (Knob::Scaling, "device"),
        (Knob::Layout, "lane+stage"),
        (Knob::Mode, "falcon-func"),
    ] {
        assert!(restarts(splits, knob, text), "{knob:?}");
    }
    assert!(restarts(stages, Knob::Mode, "falcon-func"));
    assert!(restarts(stages, Knob::Stages, "nic"));
    // Where flows are split there are no stages.
    assert!(!restarts(splits, Knob::Stages, "nic"));
    for (knob, text) in [
        (Knob::BatchPkts, "16"),
        (Knob::MergeTimeoutUs, "99"),
        (Knob::MinFlowPps, "1"),
        (Knob::Build, "nic"),
        (Knob::Join, "0"),
        (Knob::LoadThresholdPct, "85"),
    ] {
        assert!(!restarts(splits, knob, text), "{knob:?}");
    }
}

#[test]
fn sentences_name_the_limits() {
    let sentences: Vec<_> = KNOBS
        .iter()
        .map(|spec| spec.allowed().to_string())
        .collect();
    assert_eq!(
        sentences,
        [
            "enabled: allowed 0 (off) or 1 (on)",
            "cpus: allowed auto, or up to 16 CPUs below 1024, written like 2-5,8, or nothing for none",
            "batch_pkts: allowed 1 to 4096 packets",
            "merge_timeout_us: allowed 10 to 1000000 microseconds",
            "min_flow_pps: allowed 1 to 10000000 packets per second",
            "scaling: allowed path or device",
            "build: allowed auto, nic or lane",
            "join: allowed 0 (off) or 1 (on)",
            "layout: allowed lane or lane+stage",
            "mode: allowed mflow, falcon-dev or falcon-func",
            "stages: allowed nic+tunnel+veth, nic+tunnel, nic+veth or nic",
            "load_threshold_pct: allowed 0 to 100 per cent",
        ]
    );
    assert!(DEVICES_ALLOWED.starts_with("devices: allowed "));
    assert!(DEVICES_ALLOWED.ends_with(&format!("of 1 to {} bytes", DEVICE_NAME_SIZE - 1)));
}

/// Each value beside each of the other three knobs' values: what is not in the table is refused, whichever is written last.
#[test]
fn combinations_are_those_of_the_table() {
    let values = |knob: Knob| match knob.spec().limits {
        Limits::Words(words) => words,
        _ => panic!("{knob:?} is a word"),
    };
    let knobs = [Knob::Mode, Knob::Layout, Knob::Scaling, Knob::Build];
    for (mode, layout) in cross(values(Knob::Mode), values(Knob::Layout)) {
        for (scaling, build) in cross(values(Knob::Scaling), values(Knob::Build)) {
            let words = [mode, layout, scaling, build];
            let is_valid = COMBINATIONS.iter().any(|with| {
                (with.mode.name(), with.layout.name()) == (mode, layout)
                    && with.scaling.iter().any(|value| value.name() == scaling)
                    && with.build.iter().any(|value| value.name() == build)
            });
            for last in 0..knobs.len() {
                let text = |at: usize| knobs[at].spec().name().to_owned() + "=" + words[at];
                let Some(before) = with_others(knobs, words, last) else {
                    continue;
                };
                let mut after = before;
                let written = after.set(knobs[last], words[last].as_bytes());
                assert_eq!(written.is_ok(), is_valid, "{words:?}, last {}", text(last));
                assert!(is_valid || after == before, "{words:?} changed something");
            }
        }
    }
}

fn cross<'a>(
    some: &'a [&'a str],
    others: &'a [&'a str],
) -> impl Iterator<Item = (&'a str, &'a str)> {
    some.iter()
        .flat_map(move |one| others.iter().map(move |other| (*one, *other)))
}

/// Returns knobs with all of these values but one, which is the default; none if the others do not go together.
fn with_others(knobs: [Knob; 4], words: [&str; 4], but: usize) -> Option<Knobs> {
    // In some order they are taken, if they go together.
    [[0, 1, 2, 3], [3, 2, 1, 0]].into_iter().find_map(|order| {
        let mut set = UNCONTROLLED;
        let mut others = order.into_iter().filter(|at| *at != but);
        others
            .all(|at| set.set(knobs[at], words[at].as_bytes()).is_ok())
            .then_some(set)
    })
}

#[test]
fn misfits_are_sentences() {
    let refused = |texts: &[(Knob, &str)]| {
        let mut knobs = UNCONTROLLED;
        let (last, others) = texts.split_last().expect("some");
        for (knob, text) in others {
            knobs.set(*knob, text.as_bytes()).expect("taken");
        }
        let before = knobs;
        let written = knobs.set(last.0, last.1.as_bytes());
        assert_eq!(knobs, before);
        match written {
            Err(KnobError::Combination(misfit)) => misfit.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let pairs = (Knob::Layout, "lane+stage");
    for (texts, sentence) in [
        (
            &[(Knob::Mode, "falcon-dev"), (Knob::Build, "lane")][..],
            "mode falcon-dev goes with scaling path and build auto or nic only",
        ),
        (
            &[(Knob::Mode, "falcon-func"), pairs],
            "mode falcon-func goes with layout lane only",
        ),
        (
            &[pairs, (Knob::Build, "nic")],
            "mode mflow with layout lane+stage goes with scaling path and build auto or lane only",
        ),
        (
            &[(Knob::Cpus, "2-4"), pairs],
            "layout lane+stage goes with an even number of cpus only",
        ),
        (
            &[pairs, (Knob::Cpus, "2")],
            "layout lane+stage goes with an even number of cpus only",
        ),
        (
            &[pairs, (Knob::LoadThresholdPct, "85")],
            "layout lane+stage goes with load_threshold_pct 0 only",
        ),
        (
            &[(Knob::LoadThresholdPct, "1"), pairs],
            "layout lane+stage goes with load_threshold_pct 0 only",
        ),
    ] {
        assert_eq!(refused(texts), sentence);
    }
}

#[test]
fn lanes_have_one_cpu_or_two() {
    let mut knobs = UNCONTROLLED;
    knobs.set(Knob::Cpus, b"2-4,9").expect("taken");
    let lanes = |knobs: &Knobs| -> Vec<_> {
        knobs
            .lanes()
            .map(|lane| (lane.builds, lane.carries))
            .collect()
    };
    assert_eq!(lanes(&knobs), [2, 3, 4, 9].map(|cpu| (None, cpu)));
    knobs.set(Knob::Layout, b"lane+stage").expect("taken");
    assert_eq!(lanes(&knobs), [(Some(2), 4), (Some(3), 9)]);
    knobs.set(Knob::Cpus, b"").expect("taken");
    assert_eq!(lanes(&knobs), []);
}

/// `auto` leaves the CPUs as they are until others are chosen: it is that which restarts sources, and any number may be chosen.
#[test]
fn auto_keeps_cpus_until_a_choice() {
    let mut knobs = UNCONTROLLED;
    knobs.set(Knob::Cpus, b"2-4").expect("taken");
    let before = knobs;
    knobs.set(Knob::Cpus, b"auto").expect("taken");
    assert_eq!(knobs.cpus, before.cpus);
    assert!(!before.restarts_for(&knobs));
    let chosen = Knobs {
        cpus: CpuSet::parse(b"5-8").expect("a list"),
        ..knobs
    };
    assert!(knobs.restarts_for(&chosen));
    assert_eq!(chosen.get(Knob::Cpus).to_string(), "auto");
    knobs
        .set(Knob::Layout, b"lane+stage")
        .expect("an even number will be chosen");
    assert_eq!(
        knobs.set(Knob::Cpus, b"2-4"),
        Err(KnobError::Combination(Misfit::OddCpus))
    );
    knobs.set(Knob::Cpus, b"2-5").expect("taken");
    assert_eq!(knobs.get(Knob::Cpus).to_string(), "2-5");
}

#[test]
fn each_knob_finds_its_own_description() {
    for spec in &KNOBS {
        assert_eq!(spec.knob.spec().name(), spec.name());
    }
}

fn device(text: &[u8]) -> Result<String, KnobError> {
    DeviceCommand::parse(text).map(|command| match command {
        DeviceCommand::Add(name) => format!("add {name}"),
        DeviceCommand::Remove(name) => format!("remove {name}"),
    })
}

#[test]
fn device_commands() {
    let table: &[(&[u8], Result<&str, KnobError>)] = &[
        (b"+eth0\n", Ok("add eth0")),
        (b"-eth0", Ok("remove eth0")),
        (b" +vxlan.100 ", Ok("add vxlan.100")),
        (b"++", Ok("add +")),
        (b"--x", Ok("remove -x")),
        (b"+...", Ok("add ...")),
        (b"+abcdefghijklmno", Ok("add abcdefghijklmno")),
        (b"+abcdefghijklmnop", Err(Syntax)),
        (b"", Err(Syntax)),
        (b"+", Err(Syntax)),
        (b"+\n", Err(Syntax)),
        (b"eth0", Err(Syntax)),
        (b"+ eth0", Err(Syntax)),
        (b"+eth0 eth1", Err(Syntax)),
        (b"+eth0\n+eth1", Err(Syntax)),
        (b"+.", Err(Syntax)),
        (b"-..", Err(Syntax)),
        (b"+a/b", Err(Syntax)),
        (b"+eth0:1", Err(Syntax)),
        (b"+a\x0bb", Err(Syntax)),
        (b"+a\xa0b", Err(Syntax)),
        (b"+a\0b", Err(Syntax)),
        (b"+\xc3\xa9", Ok("add \\xc3\\xa9")),
    ];
    for (text, expected) in table {
        assert_eq!(
            device(text),
            expected.map(str::to_owned),
            "{:?}",
            text.escape_ascii()
        );
    }
}

#[test]
fn device_name_is_terminated() {
    let name = DeviceName::new(b"abcdefghijklmno").unwrap();
    assert_eq!(name.as_bytes(), b"abcdefghijklmno");
    assert_eq!(name.as_array(), b"abcdefghijklmno\0");
    let name = DeviceName::new(b"eth0").unwrap();
    assert_eq!(name.as_bytes(), b"eth0");
    assert_eq!(name.as_array(), b"eth0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(format!("{name:?}"), "DeviceName(eth0)");
}

#[test]
fn device_lists() {
    let names = |text: &str| -> Result<Vec<String>, KnobError> {
        DeviceName::list(text.as_bytes())
            .map(|name| name.map(|name| name.to_string()))
            .collect()
    };
    assert_eq!(names(""), Ok(vec![]));
    assert_eq!(names(" \n"), Ok(vec![]));
    assert_eq!(names("eth0\n"), Ok(vec!["eth0".into()]));
    assert_eq!(names("eth0,eth1"), Ok(vec!["eth0".into(), "eth1".into()]));
    assert_eq!(names("eth0,"), Err(Syntax));
    assert_eq!(names("eth0, eth1"), Err(Syntax));
}

fn knob() -> impl Strategy<Value = &'static KnobSpec> {
    (0..KNOBS.len()).prop_map(|i| KNOBS[i].knob.spec())
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..24),
        "[0-9,: /\n-]{0,12}".prop_map(String::into_bytes),
        any::<u32>().prop_map(|value| value.to_string().into_bytes()),
        (0u32..5000).prop_map(|value| value.to_string().into_bytes()),
        "(path|device)\n?".prop_map(String::into_bytes),
        "(auto|nic|lane)\n?".prop_map(String::into_bytes),
        "(mflow|falcon-dev|falcon-func)".prop_map(String::into_bytes),
    ]
}

fn within_limits(knobs: &Knobs) -> bool {
    KNOBS.iter().all(|spec| {
        let text = knobs.get(spec.knob).to_string();
        match spec.limits {
            Limits::Switch => text == "0" || text == "1",
            Limits::Number(limits) => (limits.min..=limits.max).contains(&text.parse().unwrap()),
            Limits::Lanes if text == "auto" => knobs.cpus.len() <= MAX_LANES,
            Limits::Lanes => CpuSet::parse(text.as_bytes()).unwrap().len() <= MAX_LANES,
            Limits::Words(words) => words.contains(&text.as_str()),
        }
    })
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn any_sequence_of_writes_keeps_the_limits(
        writes in prop::collection::vec((knob(), text()), 0..20)
    ) {
        let mut knobs = UNCONTROLLED;
        for (spec, text) in writes {
            let before = knobs;
            match knobs.set(spec.knob, &text) {
                Err(_) => prop_assert_eq!(knobs, before),
                Ok(()) => {
                    // What is printed means the same when it is written, and no other knob has changed.
                    let printed = knobs.get(spec.knob).to_string();
                    let mut again = before;
                    prop_assert_eq!(again.set(spec.knob, printed.as_bytes()), Ok(()));
                    prop_assert_eq!(again, knobs);
                }
            }
            prop_assert!(within_limits(&knobs));
        }
    }

    #[test]
    fn numbers_are_taken_exactly_within_limits(spec in knob(), value in prop_oneof![0u64..5000, any::<u64>()]) {
        if let Limits::Number(limits) = spec.limits {
            let expected = match u32::try_from(value) {
                Ok(number) if (limits.min..=limits.max).contains(&number) => Ok(value.to_string()),
                _ => Err(Range),
            };
            prop_assert_eq!(set(spec.knob, &value.to_string()), expected);
        }
    }

    #[test]
    fn device_names_are_kept_byte_for_byte(text in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        "[+-][a-z0-9.@]{1,16}".prop_map(String::into_bytes),
    ]) {
        // The trimmed text is what the command is made of; nothing may be lost or added in between.
        let expected = text.trim_ascii();
        match DeviceCommand::parse(&text) {
            Ok(DeviceCommand::Add(name)) => prop_assert_eq!([b"+", name.as_bytes()].concat(), expected),
            Ok(DeviceCommand::Remove(name)) => prop_assert_eq!([b"-", name.as_bytes()].concat(), expected),
            Err(error) => prop_assert_eq!(error, Syntax),
        }
    }
}
