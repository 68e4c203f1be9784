// SPDX-License-Identifier: GPL-2.0

//! Knobs and facts that hold for all devices of the host. Of most, no message tells that they have changed.

use std::fs;

use anyhow::Result;

use super::{ipsec, sysctl};

/// Those knobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    /// The policies by which the kernel chooses among next hops: of IPv4, and of IPv6.
    pub(crate) hash_policies: [i64; 2],
    /// True if IPv6 is forwarded at all, whatever its devices say.
    pub(crate) forwards_ipv6: bool,
    pub(crate) answers_for_neighbours: bool,
    pub(crate) rp_filter: i64,
    pub(crate) sends_redirects: bool,
    pub(crate) has_ipsec: bool,
    /// True if the kernel's look-up for programs may find a VRF that was left on the stack: it does not say which it looks for.
    pub(crate) mistakes_vrfs: bool,
    /// True if the kernel runs no programs behind its functions, even where it has attached some.
    pub(crate) is_untraced: bool,
}

impl Host {
    pub(crate) fn read() -> Result<Self> {
        let policy = |family: &str| sysctl::number(&format!("{family}/fib_multipath_hash_policy"));
        Ok(Self {
            hash_policies: ["ipv4", "ipv6"].map(|family| policy(family).unwrap_or(0)),
            forwards_ipv6: sysctl::is_on("ipv6/conf/all/forwarding"),
            answers_for_neighbours: sysctl::is_on("ipv6/conf/all/proxy_ndp"),
            rp_filter: sysctl::of_device("ipv4", "all", "rp_filter").unwrap_or(0),
            sends_redirects: sysctl::is_on("ipv4/conf/all/send_redirects"),
            has_ipsec: ipsec::has_policies()?,
            mistakes_vrfs: configuration().is_some_and(|text| leaves_stack_dirty(&text)),
            is_untraced: !runs_behind_functions(),
        })
    }
}

/// Returns whether the kernel runs the programs that are attached to its functions.
pub(crate) fn runs_behind_functions() -> bool {
    let read = fs::read_to_string("/proc/sys/kernel/ftrace_enabled");
    // A kernel that cannot do that attaches none.
    !read.is_ok_and(|text| text.trim() == "0")
}

/// Returns the configuration that the running kernel was built with, where its distribution has put it.
fn configuration() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    fs::read_to_string(format!("/boot/config-{}", release.trim())).ok()
}

/// Returns whether variables of such a kernel that are not set have what was on the stack before: `flowi_l3mdev` in net/core/filter.c is
/// one.
fn leaves_stack_dirty(configuration: &str) -> bool {
    !configuration
        .lines()
        .any(|line| line == "CONFIG_INIT_STACK_ALL_ZERO=y")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_says_whether_variables_are_cleared() {
        assert!(!leaves_stack_dirty(
            "CONFIG_NET=y\nCONFIG_INIT_STACK_ALL_ZERO=y\n"
        ));
        assert!(leaves_stack_dirty(
            "# CONFIG_INIT_STACK_ALL_ZERO is not set\n"
        ));
        assert!(leaves_stack_dirty(""));
    }
}
