// SPDX-License-Identifier: GPL-2.0

//! Numbers below /proc/sys/net, which are those of the calling thread's network namespace.

use std::fs;

/// Returns a number; `None` if it is not there, as that of a device that has just gone.
pub(crate) fn number(name: &str) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?;
    text.trim().parse().ok()
}

/// Returns whether a number is there, and not 0.
pub(crate) fn is_on(name: &str) -> bool {
    number(name).is_some_and(|number| number != 0)
}

/// Returns the number of a device, or of `all` devices.
pub(crate) fn of_device(family: &str, device: &str, knob: &str) -> Option<i64> {
    number(&format!("{family}/conf/{device}/{knob}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_there_are_none() {
        assert!(number("ipv4/ip_default_ttl").is_some_and(|number| number > 0));
        assert_eq!(of_device("ipv4", "no such device", "rp_filter"), None);
        assert!(!is_on("ipv4/no_such_knob"));
    }
}
