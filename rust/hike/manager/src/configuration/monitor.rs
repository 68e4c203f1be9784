// SPDX-License-Identifier: GPL-2.0

//! Monitors: the flows that are counted.

use std::net::Ipv6Addr;
use std::time::Duration;

use mflow_hike::config::fields as library;
use mflow_hike::{Direction, Marking, Monitor};
use serde::{Deserialize, Serialize};

use super::fields;

pub(crate) const USUAL_PERIOD_MS: u32 = 1000;

/// A flow that is counted: all packets that take a path, or those of a source with these SIDs and this FlowMonID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Counted {
    /// The end of the flow at which it is counted.
    pub direction: Direction,
    /// The name of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The flow's source.
    #[serde(deserialize_with = "library::source", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Ipv6Addr>,
    /// Its SIDs.
    #[serde(deserialize_with = "library::sids", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sids: Option<Vec<Ipv6Addr>>,
    /// The FlowMonID that its packets have in the option of RFC 9343; `None`: they do not have the option, or take a path, which says it.
    #[serde(deserialize_with = "library::flow_id", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_id: Option<u32>,
    /// The length of a block in milliseconds.
    #[serde(deserialize_with = "fields::period_ms")]
    #[serde(default = "library::usual::<_, USUAL_PERIOD_MS>")]
    #[serde(skip_serializing_if = "library::is_usual::<_, USUAL_PERIOD_MS>")]
    pub period_ms: u32,
    /// The bit of DSCP that is the colour; `None`: it is in the option of RFC 9343.
    #[serde(deserialize_with = "fields::dscp_bit", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp_bit: Option<u8>,
}

impl Counted {
    /// Returns the way in which it is monitored.
    pub fn monitor(&self) -> Monitor {
        Monitor {
            period: Duration::from_millis(self.period_ms.into()),
            marking: self.dscp_bit.map_or(Marking::Option, Marking::DscpBit),
        }
    }

    /// Returns the same flow, monitored in this way.
    pub(crate) fn with(self, monitor: Monitor) -> Self {
        Self {
            // CAST: a day at most.
            period_ms: monitor.period.as_millis() as u32,
            dscp_bit: match monitor.marking {
                Marking::Option => None,
                Marking::DscpBit(bit) => Some(bit),
            },
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_monitor_say_the_same() {
        for (dscp_bit, marking) in [(None, Marking::Option), (Some(5), Marking::DscpBit(5))] {
            let counted = Counted {
                direction: Direction::In,
                path: Some("p".to_owned()),
                source: None,
                sids: None,
                flow_id: None,
                period_ms: 10,
                dscp_bit,
            };
            let monitor = Monitor {
                period: Duration::from_millis(10),
                marking,
            };
            assert_eq!(counted.monitor(), monitor);
            assert_eq!(counted.clone().with(monitor), counted);
        }
    }
}
