// SPDX-License-Identifier: GPL-2.0

//! Why lanes build no packets of a device on a kernel without our hooks.

use mflow_algo::algo::source::redirection::{Redirection, Refusal};

/// Numbers of `uapi/asm-generic/errno.h`.
const EPERM: i32 = -1;
const EBUSY: i32 = -16;
const EEXIST: i32 = -17;
const EXDEV: i32 = -18;
const EINVAL: i32 = -22;
const EPROTONOSUPPORT: i32 = -93;
const EOPNOTSUPP: i32 = -95;

#[test]
fn errors_of_the_kernel_are_reasons() {
    for (errno, refusal) in [
        (EBUSY, Refusal::Xdp),
        (EEXIST, Refusal::Xdp),
        (EXDEV, Refusal::Namespace),
        (EOPNOTSUPP, Refusal::NoXdp),
        (EPROTONOSUPPORT, Refusal::VlanTags),
        (EINVAL, Refusal::Driver),
        (EPERM, Refusal::Driver),
    ] {
        assert_eq!(Refusal::of_errno(errno), refusal, "{errno}");
    }
}

#[test]
fn the_manual_explains_each_reason() {
    let manual = include_str!("../../../../README.md");
    let row = manual.lines().find(|line| line.contains("`builders` |"));
    let row = row.expect("a row for `builders`");
    for refusal in Refusal::ALL {
        let name = format!("`{}`", Redirection::Refused(refusal).builder());
        assert!(row.contains(&name), "rust/README.md says nothing of {name}");
        assert!(refusal.sentence().is_ascii());
    }
}
