// SPDX-License-Identifier: GPL-2.0

//! The state of a device whose packets go to lanes before they are built. On a kernel without our hooks, a program in the
//! device's driver has to redirect them for that.

/// The progress of the redirection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redirection {
    /// It has not been asked for, or not yet.
    #[default]
    Off,
    /// The program is being attached: nothing is split meanwhile, as drivers poll on another CPU while it comes or goes.
    Coming,
    /// They are redirected.
    On,
    /// The program is being taken off; see [`Coming`](Self::Coming).
    Going,
    /// It cannot be had, for this reason.
    Refused(Refusal),
}

/// The reason why packets cannot be redirected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Somebody else's program is there.
    Xdp,
    /// The driver takes no program, and that of the kernel for all devices comes behind the building of packets.
    NoXdp,
    /// The NIC takes tags of VLANs off packets, and cannot be told not to.
    VlanTags,
    /// The device is in another namespace than the process that asks.
    Namespace,
    /// The kernel or the driver says no for another reason, mostly an MTU beyond what the driver can do with a program.
    Driver,
}

impl Refusal {
    /// All.
    pub const ALL: [Self; 5] = [
        Self::Xdp,
        Self::NoXdp,
        Self::VlanTags,
        Self::Namespace,
        Self::Driver,
    ];

    /// Returns the refusal that an error of the kernel means (a negative number, of `uapi/asm-generic/errno.h`).
    pub const fn of_errno(errno: i32) -> Self {
        match errno {
            // EBUSY, EEXIST
            -16 | -17 => Self::Xdp,
            // EXDEV
            -18 => Self::Namespace,
            // EOPNOTSUPP
            -95 => Self::NoXdp,
            // EPROTONOSUPPORT
            -93 => Self::VlanTags,
            _ => Self::Driver,
        }
    }

    /// Returns how the file `builders` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::NoXdp => "no_xdp",
            Self::VlanTags => "vlan_tags",
            Self::Namespace => "namespace",
            Self::Driver => "driver",
        }
    }

    /// Returns the reason and the next thing to try.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Xdp => "an XDP program is attached: take it off and write build again",
            Self::NoXdp => "its driver takes no XDP program",
            Self::VlanTags => "it takes VLAN tags off packets, which XDP programs do not see, and cannot be told not to",
            Self::Namespace => "it is in another network namespace: write build again there",
            Self::Driver => "kernel or driver refuse an XDP program: look at its MTU, make it smaller and write build again",
        }
    }
}

impl Redirection {
    /// Tells whether nothing of the device is split for now.
    pub const fn is_changing(self) -> bool {
        matches!(self, Self::Coming | Self::Going)
    }

    /// Returns how the file `builders` names what builds packets.
    pub const fn builder(self) -> &'static str {
        match self {
            Self::Off | Self::Coming | Self::Going => "unasked",
            Self::On => "lane",
            Self::Refused(refusal) => refusal.name(),
        }
    }
}
