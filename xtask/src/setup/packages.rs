// SPDX-License-Identifier: GPL-2.0

//! The distribution packages we need, and how to see whether they are there.

use std::path::Path;

use crate::tools;

/// The purpose of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Building the kernel, the module and the BPF programs.
    Kernel,
    /// Booting the test network in a virtual machine.
    Vm,
    /// More checks in `test tidy` and `test mlx5`; left out, these checks are skipped.
    Checks,
    /// `build-kernel --deb`.
    Deb,
    /// The cases of `bench` with applications.
    Applications,
}

/// A sign that a package, or something as good, is installed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Probe {
    /// A program in `PATH`.
    Program(&'static str),
    File(&'static str),
}

#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) probe: Probe,
    pub(crate) need: Need,
    pub(crate) why: &'static str,
}

impl Probe {
    pub(crate) fn found(self) -> Option<String> {
        match self {
            Self::Program(name) => tools::find(name).map(|path| path.display().to_string()),
            Self::File(name) => Path::new(name).exists().then(|| name.to_owned()),
        }
    }
}

/// Makes packages of lines `NEED NAME: PROBE(SIGN), WHY;`.
macro_rules! packages {
    ($($need:ident $name:literal: $probe:ident($sign:expr), $why:literal;)*) => {
        &[$(Package { name: $name, probe: Probe::$probe($sign), need: Need::$need, why: $why }),*]
    };
}

/// Every package but the compilers, whose version is part of their name (see `llvm.rs`).
///
/// The distribution starts servers, haproxy and Open vSwitch when it installs them; guests run their own.
pub(crate) const PACKAGES: &[Package] = packages! {
    Kernel "linux-source-6.12": File(super::KERNEL_TARBALL), "kernel source";
    Kernel "gcc": Program("cc"), "linker driver of Rust host programs";
    Kernel "libc6-dev": File("/usr/include/stdio.h"), "C library headers for the kernel's host programs";
    Kernel "make": Program("make"), "kernel build";
    Kernel "flex": Program("flex"), "kernel configuration";
    Kernel "bison": Program("bison"), "kernel configuration";
    Kernel "bc": Program("bc"), "kernel build";
    Kernel "perl": File("/usr/bin/pod2man"), "kernel build and style checks; the base system has a small part of it";
    Kernel "patch": Program("patch"), "our patches";
    Kernel "rsync": Program("rsync"), "kernel work tree and headers";
    Kernel "xz-utils": Program("xz"), "unpacking the kernel source";
    Kernel "cpio": Program("cpio"), "kernel headers and initramfs";
    Kernel "kmod": Program("depmod"), "installing modules";
    Kernel "libelf-dev": File("/usr/include/gelf.h"), "objtool";
    Kernel "libbpf-dev": File("/usr/include/bpf/bpf_helpers.h"), "headers of BPF programs";
    Kernel "libssl-dev": File("/usr/include/openssl/ssl.h"), "module signatures";
    Vm "qemu-system-x86": Program("qemu-system-x86_64"), "virtual machine";
    Vm "sockperf": Program("sockperf"), "load generator of the demo";
    Vm "iperf3": Program("iperf3"), "load generator";
    Vm "iproute2": Program("ip"), "network set-up in the guest";
    Vm "tcpdump": Program("tcpdump"), "capture during a test";
    Vm "ethtool": Program("ethtool"), "offload switches in the guest";
    Vm "nftables": Program("nft"), "address translation in the guest";
    Vm "iptables": Program("iptables-nft-restore"), "rules of kube-proxy and Docker in the guest";
    Vm "ipset": Program("ipset"), "sets of addresses in the guest";
    Vm "ipvsadm": Program("ipvsadm"), "the kernel's load balancer in the guest";
    Vm "haproxy": Program("haproxy"), "a service mesh's proxy in the guest";
    Vm "openvswitch-switch": Program("ovs-dpctl"), "Open vSwitch in the guest";
    Vm "iputils-ping": Program("ping"), "echoes in the guest";
    Vm "wireguard-tools": Program("wg"), "a tunnel between hosts in the guest";
    Vm "util-linux": Program("taskset"), "pinning programs to processors";
    Checks "sparse": Program("sparse"), "address space and lock checks of the C files";
    Checks "python3-yaml": File("/usr/lib/python3/dist-packages/yaml/__init__.py"), "the kernel's generator for netlink";
    Checks "python3-jsonschema": File("/usr/lib/python3/dist-packages/jsonschema/__init__.py"), "the kernel's schema of netlink families";
    Checks "ansible-core": Program("ansible-playbook"), "syntax of the role in xtask/fleet";
    Checks "bpftrace": Program("bpftrace"), "scripts for bpftrace";
    Checks "g++": Program("c++"), "libFuzzer, which is in C++";
    Deb "debhelper": Program("dh_builddeb"), "kernel packages";
    Deb "dpkg-dev": Program("dpkg-buildpackage"), "kernel packages";
    Deb "linux-config-6.12": File(super::DISTRIBUTION_CONFIGS), "the distribution's kernel configuration";
    Applications "memcached": Program("memcached"), "application under load";
    Applications "nginx": Program("nginx"), "application under load";
    Applications "libmemcached-tools": Program("memcaslap"), "load generator for memcached";
    Applications "wrk": Program("wrk"), "load generator for nginx";
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn probes_tell_present_from_absent() {
        assert!(Probe::Program("sh").found().is_some());
        assert!(Probe::Program("no-such-program-anywhere").found().is_none());
        assert!(Probe::File("/proc/self/status").found().is_some());
        assert!(Probe::File("/no/such/file").found().is_none());
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = PACKAGES.iter().map(|package| package.name).collect();
        assert_eq!(names.len(), PACKAGES.len());
    }
}
