// SPDX-License-Identifier: GPL-2.0

//! The distribution packages we need, and how to see whether they are there.

use std::path::Path;

use crate::tools;

/// What a package is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Building the kernel and the module.
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
    /// Returns where the sign was found.
    pub(crate) fn found(self) -> Option<String> {
        match self {
            Self::Program(name) => tools::find(name).map(|path| path.display().to_string()),
            Self::File(name) => Path::new(name).exists().then(|| name.to_owned()),
        }
    }
}

const fn program(
    name: &'static str,
    program: &'static str,
    need: Need,
    why: &'static str,
) -> Package {
    let probe = Probe::Program(program);
    Package {
        name,
        probe,
        need,
        why,
    }
}

const fn file(name: &'static str, file: &'static str, need: Need, why: &'static str) -> Package {
    let probe = Probe::File(file);
    Package {
        name,
        probe,
        need,
        why,
    }
}

/// Every package but the compilers, whose version is part of their name (see `llvm.rs`).
pub(crate) const PACKAGES: &[Package] = {
    use Need::*;
    &[
        file(
            "linux-source-6.12",
            super::KERNEL_TARBALL,
            Kernel,
            "kernel source",
        ),
        program("gcc", "cc", Kernel, "linker driver of Rust host programs"),
        file(
            "libc6-dev",
            "/usr/include/stdio.h",
            Kernel,
            "C library headers for the kernel's host programs",
        ),
        program("make", "make", Kernel, "kernel build"),
        program("flex", "flex", Kernel, "kernel configuration"),
        program("bison", "bison", Kernel, "kernel configuration"),
        program("bc", "bc", Kernel, "kernel build"),
        file(
            "perl",
            "/usr/bin/pod2man",
            Kernel,
            "kernel build and style checks; the base system has a small part of it",
        ),
        program("patch", "patch", Kernel, "our patches"),
        program("rsync", "rsync", Kernel, "kernel work tree and headers"),
        program("xz-utils", "xz", Kernel, "unpacking the kernel source"),
        program("cpio", "cpio", Kernel, "kernel headers and initramfs"),
        program("kmod", "depmod", Kernel, "installing modules"),
        file("libelf-dev", "/usr/include/gelf.h", Kernel, "objtool"),
        file(
            "libssl-dev",
            "/usr/include/openssl/ssl.h",
            Kernel,
            "module signatures",
        ),
        program(
            "qemu-system-x86",
            "qemu-system-x86_64",
            Vm,
            "virtual machine",
        ),
        program("sockperf", "sockperf", Vm, "load generator of the demo"),
        program("iperf3", "iperf3", Vm, "load generator"),
        program("iproute2", "ip", Vm, "network set-up in the guest"),
        program("tcpdump", "tcpdump", Vm, "capture during a test"),
        program("ethtool", "ethtool", Vm, "offload switches in the guest"),
        program("nftables", "nft", Vm, "address translation in the guest"),
        program("iputils-ping", "ping", Vm, "echoes in the guest"),
        program(
            "util-linux",
            "taskset",
            Vm,
            "pinning programs to processors",
        ),
        program(
            "sparse",
            "sparse",
            Checks,
            "address space and lock checks of the C files",
        ),
        program("g++", "c++", Checks, "libFuzzer, which is in C++"),
        program("debhelper", "dh_builddeb", Deb, "kernel packages"),
        program("dpkg-dev", "dpkg-buildpackage", Deb, "kernel packages"),
        file(
            "linux-config-6.12",
            super::DISTRIBUTION_CONFIGS,
            Deb,
            "the distribution's kernel configuration",
        ),
        // The distribution starts both servers when it installs them; a benchmark runs its own, in the guest.
        program(
            "memcached",
            "memcached",
            Applications,
            "application under load",
        ),
        program("nginx", "nginx", Applications, "application under load"),
        program(
            "libmemcached-tools",
            "memcaslap",
            Applications,
            "load generator for memcached",
        ),
        program("wrk", "wrk", Applications, "load generator for nginx"),
    ]
};

#[cfg(test)]
mod tests {
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
        let mut names: Vec<_> = PACKAGES.iter().map(|package| package.name).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
    }
}
