// SPDX-License-Identifier: GPL-2.0

//! The kinds of cases: each is a figure of a report.

use super::hike_cases;

/// A kind of figure, in the order in which figures are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Udp,
    Tcp,
    Order,
    Latency,
    Rates,
    Answers,
    Flows,
    Overhead,
    Applications,
    /// A router with chains of HIKE.
    Hike,
    /// Cases that no rule below knows: they are shown, too.
    Other,
}

impl Kind {
    pub(crate) fn of(case: &str) -> Self {
        let starts = |prefix: &str| case.starts_with(prefix);
        match case {
            _ if starts("udp-") => Self::Udp,
            _ if starts("tcp-") || starts("stream-") => Self::Tcp,
            _ if starts("order-") => Self::Order,
            _ if starts("latency-") => Self::Latency,
            _ if starts("rate-") => Self::Rates,
            _ if starts("answer-") => Self::Answers,
            _ if starts("flows-") => Self::Flows,
            _ if starts("overhead") => Self::Overhead,
            _ if starts(hike_cases::PREFIX) => Self::Hike,
            _ if starts("memcached") || starts("nginx") => Self::Applications,
            _ => Self::Other,
        }
    }

    /// For file names and anchors.
    pub(crate) fn slug(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Order => "order",
            Self::Latency => "latency",
            Self::Rates => "rates",
            Self::Answers => "answers",
            Self::Flows => "flows",
            Self::Overhead => "overhead",
            Self::Applications => "applications",
            Self::Hike => "hike",
            Self::Other => "other",
        }
    }

    pub(crate) fn subject(self) -> &'static str {
        match self {
            Self::Udp => "Single UDP flow",
            Self::Tcp => "Single TCP flow",
            Self::Order => "Order disturbance against batch size",
            Self::Latency => "Latency of an overloaded receiver",
            Self::Rates => "The same work for all: fixed rates",
            Self::Answers => "Request and answer, and a flow at a tenth of its rate",
            Self::Flows => "Several flows and the load of each core",
            Self::Overhead => "What mflow costs where it does not split",
            Self::Applications => "Applications",
            Self::Hike => "HIKE: chains of BPF programs at XDP",
            Self::Other => "Other cases",
        }
    }
}
