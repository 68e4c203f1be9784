// SPDX-License-Identifier: GPL-2.0

//! Sessions: the test packets that this host sends to reflectors (STAMP, RFC 8762).

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{ensure, Result};
use mflow_hike::config::fields as library;
use mflow_hike::stamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::fields;

// CAST: 16 bits.
pub(crate) const USUAL_PORT: u32 = stamp::PORT as u32;
pub(crate) const USUAL_INTERVAL_MS: u32 = 1000;
pub(crate) const USUAL_TIMEOUT_MS: u32 = 1000;

/// The mode of test packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TestMode {
    /// Anybody may ask, and nobody can tell who has answered.
    #[default]
    Unauthenticated,
}

impl<'de> Deserialize<'de> for TestMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "unauthenticated" => Ok(Self::Unauthenticated),
            "authenticated" => Err(D::Error::custom(
                "test packets with authentication are not supported, as reflectors in the kernel have no keys; leave mode out, and let an \
                 access list say who may ask",
            )),
            other => Err(D::Error::custom(format_args!(
                "mode is `{other}`: unauthenticated is allowed"
            ))),
        }
    }
}

/// Test packets to one reflector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Session {
    /// The address of the reflector.
    #[serde(deserialize_with = "fields::reflector")]
    pub reflector: IpAddr,
    /// The port of the reflector.
    #[serde(deserialize_with = "fields::port")]
    #[serde(default = "library::usual::<_, USUAL_PORT>")]
    #[serde(skip_serializing_if = "library::is_usual::<_, USUAL_PORT>")]
    pub port: u16,
    /// The address that they come from, one of this host; `None`: the one that the kernel chooses.
    #[serde(deserialize_with = "fields::ip_source", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The time from one packet to the next, in milliseconds.
    #[serde(deserialize_with = "fields::interval_ms")]
    #[serde(default = "library::usual::<_, USUAL_INTERVAL_MS>")]
    #[serde(skip_serializing_if = "library::is_usual::<_, USUAL_INTERVAL_MS>")]
    pub interval_ms: u32,
    /// The time after which a packet without an answer is lost, in milliseconds.
    #[serde(deserialize_with = "fields::timeout_ms")]
    #[serde(default = "library::usual::<_, USUAL_TIMEOUT_MS>")]
    #[serde(skip_serializing_if = "library::is_usual::<_, USUAL_TIMEOUT_MS>")]
    pub timeout_ms: u32,
    /// Their DSCP; `None`: 0.
    #[serde(deserialize_with = "library::dscp", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// Their mode.
    #[serde(default, skip_serializing)]
    pub mode: TestMode,
}

impl Session {
    /// Returns the time from one packet to the next.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.into())
    }

    /// Returns the time after which a packet without an answer is lost.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.into())
    }

    /// Fails with the reason if it cannot be.
    pub fn check(&self) -> Result<()> {
        for (what, address) in [("reflector", Some(self.reflector)), ("source", self.source)] {
            let Some(address) = address else {
                continue;
            };
            // A link-local address would need a device, too.
            let is_bad = match address {
                IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
                IpAddr::V6(address) => address.is_unicast_link_local(),
            };
            ensure!(
                !address.is_unspecified() && !address.is_multicast() && !is_bad,
                "{what} is {address}: take a unicast address that is no link-local one"
            );
            let canonical = address.to_canonical();
            ensure!(
                canonical == address,
                "{what} is {address}: write this address of IPv4 as {canonical}"
            );
        }
        ensure!(
            self.source
                .is_none_or(|source| source.is_ipv4() == self.reflector.is_ipv4()),
            "reflector and source are of different versions; take two addresses of IPv4, or two of IPv6"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::configuration::error;

    #[test]
    fn sessions_that_cannot_be_are_refused_with_the_reason() {
        let session = |text: &str| error(&format!("[sessions]\ns = {{ {text} }}"));
        for (text, said) in [
            ("port = 862", "missing field `reflector`"),
            (
                "reflector = \"x\"",
                "reflector is `x`: an IPv4 or IPv6 address is allowed, such as 10.0.0.1",
            ),
            (
                "reflector = \"fe80::1\"",
                "reflector is fe80::1: take a unicast address that is no link-local one",
            ),
            (
                "reflector = \"10.0.0.1\", source = \"224.0.0.1\"",
                "source is 224.0.0.1: take a unicast address that is no link-local one",
            ),
            (
                "reflector = \"169.254.0.1\"",
                "reflector is 169.254.0.1: take a unicast address that is no link-local one",
            ),
            (
                "reflector = \"255.255.255.255\"",
                "reflector is 255.255.255.255: take a unicast address that is no link-local one",
            ),
            (
                "reflector = \"::ffff:10.0.0.1\"",
                "reflector is ::ffff:10.0.0.1: write this address of IPv4 as 10.0.0.1",
            ),
            (
                "reflector = \"10.0.0.1\", source = \"fd00::1\"",
                "reflector and source are of different versions; take two addresses of IPv4, or two of IPv6",
            ),
            (
                "reflector = \"10.0.0.1\", interval-ms = 9",
                "interval-ms is 9: 10 to 3600000 are allowed",
            ),
            (
                "reflector = \"10.0.0.1\", timeout-ms = 60001",
                "timeout-ms is 60001: 10 to 60000 are allowed",
            ),
            (
                "reflector = \"10.0.0.1\", port = 0",
                "port is 0: 1 to 65535 are allowed",
            ),
            (
                "reflector = \"10.0.0.1\", mode = \"authenticated\"",
                "test packets with authentication are not supported, as reflectors in the kernel have no keys; leave mode out, and let an access list say who may ask",
            ),
            (
                "reflector = \"10.0.0.1\", mode = \"open\"",
                "mode is `open`: unauthenticated is allowed",
            ),
        ] {
            assert_eq!(session(text), format!("f:2: session s: {said}"));
        }
    }
}
