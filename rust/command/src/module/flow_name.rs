// SPDX-License-Identifier: GPL-2.0

//! The names that the module has for a flow.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::Serialize;

use super::text::Flow;
use crate::output::printable;

/// The names of a flow. Null stands for what is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FlowName {
    /// The device that it comes through.
    pub device: String,
    /// The device's receive queue.
    pub queue: Option<u16>,
    /// The protocol outside: `udp` or `tcp`.
    pub proto: Option<String>,
    /// The outer address and port of the sender.
    pub from: Option<SocketAddr>,
    /// The outer address and port of the receiver.
    pub to: Option<SocketAddr>,
}

impl FlowName {
    /// Returns whether this is its device, or the address of one of its ends, with the port or without it.
    pub fn is(&self, filter: &str) -> bool {
        let is_end =
            |end: SocketAddr| filter.parse() == Ok(end) || filter.parse::<IpAddr>() == Ok(end.ip());
        self.device == filter || [self.from, self.to].into_iter().flatten().any(is_end)
    }
}

impl From<&Flow> for FlowName {
    fn from(flow: &Flow) -> Self {
        Self {
            device: flow.device.clone(),
            queue: flow.queue,
            proto: flow.proto.clone(),
            from: flow.from,
            to: flow.to,
        }
    }
}

impl fmt::Display for FlowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = printable(&self.device);
        match (self.from, self.to) {
            (Some(from), Some(to)) => write!(f, "{from} to {to} at {device}"),
            _ => write!(f, "an unknown flow at {device}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(from: &str, to: &str) -> FlowName {
        FlowName {
            device: "eth0".to_owned(),
            queue: Some(0),
            proto: Some("udp".to_owned()),
            from: from.parse().ok(),
            to: to.parse().ok(),
        }
    }

    #[test]
    fn a_flow_is_chosen_by_its_device_or_an_end() {
        let four = flow("192.0.2.1:50001", "192.0.2.2:4789");
        let six = flow("[fd00::1]:50001", "[fd00::2]:4789");
        for (filter, is_it) in [
            ("eth0", true),
            ("192.0.2.1", true),
            ("192.0.2.2:4789", true),
            ("192.0.2.1:5000", false),
            ("192.0.2", false),
            ("eth", false),
            ("", false),
        ] {
            assert_eq!(four.is(filter), is_it, "{filter}");
        }
        assert!(six.is("fd00::1") && six.is("[fd00:0::2]:4789") && !six.is("fd00::3"));
        assert_eq!(six.to_string(), "[fd00::1]:50001 to [fd00::2]:4789 at eth0");
        assert_eq!(flow("", "").to_string(), "an unknown flow at eth0");
    }
}
