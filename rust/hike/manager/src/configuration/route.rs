// SPDX-License-Identifier: GPL-2.0

//! Routes of `fw-table`, and Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use mflow_hike::config::fields::Text;
use serde::{Deserialize, Serialize, Serializer};

use super::fields;

/// The next hop to which `fw-table` sends packets, and the link to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Route {
    /// The name of the port.
    pub port: String,
    /// The Ethernet address of the next hop.
    #[serde(deserialize_with = "fields::mac_next_hop")]
    pub next_hop: Mac,
    /// The Ethernet address from which packets are sent; `None`: the port's own.
    #[serde(deserialize_with = "fields::mac_source", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Mac>,
    /// The largest packet that the link carries; `None`: what the port takes.
    #[serde(deserialize_with = "fields::route_mtu", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl Text for Mac {
    const ALLOWED: &'static str = "an Ethernet address is allowed, such as 02:00:00:00:00:01";
}

impl FromStr for Mac {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let byte = |byte: &str| {
            let read = u8::from_str_radix(byte, 16).ok();
            read.filter(|_| byte.len() == 2)
        };
        let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(())
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&bytes.join(":"))
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
