// SPDX-License-Identifier: GPL-2.0

//! Fields of a configuration as they are written: numbers with their ranges, addresses, ports. The error is one sentence that names
//! the field and what is allowed.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serializer};

/// The MTU that every IPv6 link has at least: RFC 8200, 5.
pub(super) const LEAST_MTU: u16 = 1280;
const BITS_20: i64 = (1 << 20) - 1;

/// Makes a reader of each field, for `deserialize_with`. Optional fields have the same one.
#[macro_export]
macro_rules! fields {
    ($($name:ident: $type:ty = $reader:ident($($argument:expr),*);)*) => {$(
        /// Reads this field.
        pub fn $name<'de, D: serde::Deserializer<'de>, T: From<$type>>(deserializer: D) -> Result<T, D::Error> {
            $crate::config::fields::$reader(deserializer, $($argument),*).map(<$type>::into)
        }
    )*};
}

fields! {
    source: Ipv6Addr = text("source");
    sids: Vec<Ipv6Addr> = addresses("sids");
    hop_limit: u8 = number("hop-limit", 1, 255);
    dscp: u8 = number("dscp", 0, 63);
    flow_label: u32 = number("flow-label", 0, BITS_20);
    path_mtu: u16 = number("mtu", LEAST_MTU.into(), 65_535);
    flow_id: u32 = number("flow-id", 0, BITS_20);
    next_hop: Ipv6Addr = text("next-hop");
    table: u32 = number("table", 1, u32::MAX.into());
    protocol: u8 = number("protocol", 0, 255);
    source_ports: RangeInclusive<u16> = ports("source-ports");
    destination_ports: RangeInclusive<u16> = ports("destination-ports");
}

/// A field that is text.
pub trait Text: FromStr {
    /// The texts that are allowed, with an example.
    const ALLOWED: &'static str;
}

impl Text for Ipv6Addr {
    const ALLOWED: &'static str = "an IPv6 address is allowed, such as 2001:db8::1";
}

impl Text for IpAddr {
    const ALLOWED: &'static str = "an IPv4 or IPv6 address is allowed, such as 10.0.0.1";
}

/// Reads a number if it is in the range.
pub fn number<'de, D: Deserializer<'de>, T: TryFrom<i64>>(
    deserializer: D,
    field: &str,
    least: i64,
    most: i64,
) -> Result<T, D::Error> {
    within(field, i64::deserialize(deserializer)?, least, most)
}

fn within<T: TryFrom<i64>, E: Error>(
    field: &str,
    number: i64,
    least: i64,
    most: i64,
) -> Result<T, E> {
    let good = (least..=most).contains(&number).then_some(number);
    let good = good.and_then(|number| T::try_from(number).ok());
    let text = || format!("{field} is {number}: {least} to {most} are allowed");
    good.ok_or_else(|| E::custom(text()))
}

/// Reads a text.
pub fn text<'de, D: Deserializer<'de>, T: Text>(
    deserializer: D,
    field: &str,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    let read = text.parse();
    read.map_err(|_| D::Error::custom(format_args!("{field} is `{text}`: {}", T::ALLOWED)))
}

/// Reads a list of addresses.
pub fn addresses<'de, D: Deserializer<'de>>(
    deserializer: D,
    field: &str,
) -> Result<Vec<Ipv6Addr>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?.into_iter();
    let wrong = |text: &str| format!("{field} has `{text}`: {}", Ipv6Addr::ALLOWED);
    let read = texts.map(|text| text.parse().map_err(|_| D::Error::custom(wrong(&text))));
    read.collect()
}

/// Reads a range of ports: a number, or `"FIRST-LAST"`.
pub fn ports<'de, D: Deserializer<'de>>(
    deserializer: D,
    field: &str,
) -> Result<RangeInclusive<u16>, D::Error> {
    /// The forms that ports may have.
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "ports are a number, or \"FIRST-LAST\"")]
    enum Ports {
        One(i64),
        Range(String),
    }

    let (first, last) = match Ports::deserialize(deserializer)? {
        Ports::One(port) => (port, port),
        Ports::Range(text) => {
            let ends = text.split_once('-');
            let ends = ends.and_then(|(one, other)| Some((one.parse().ok()?, other.parse().ok()?)));
            let wrong = Unexpected::Str(&text);
            ends.ok_or_else(|| Error::invalid_value(wrong, &"a port, or \"FIRST-LAST\""))?
        }
    };
    let port = |port| within(field, port, 0, u16::MAX.into());
    Ok(port(first)?..=port(last)?)
}

/// Writes a range of ports as [`ports`] reads it.
pub(crate) fn write_ports<S: Serializer>(
    ports: &Option<RangeInclusive<u16>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match ports {
        None => serializer.serialize_none(),
        Some(ports) if ports.start() == ports.end() => serializer.serialize_u16(*ports.start()),
        Some(ports) => serializer.collect_str(&format_args!("{}-{}", ports.start(), ports.end())),
    }
}

/// Returns the number of a field that is left out.
pub fn usual<T: TryFrom<u32>, const USUAL: u32>() -> T {
    match T::try_from(USUAL) {
        Ok(number) => number,
        Err(_) => unreachable!("{USUAL} is usual in a field that cannot have it"),
    }
}

/// Returns whether a field has this number, and can be left out.
pub fn is_usual<T: Copy + Into<u32>, const USUAL: u32>(number: &T) -> bool {
    (*number).into() == USUAL
}

/// Returns whether a field has its default, and can be left out.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Makes types that are written as the text by which they are printed and parsed.
macro_rules! as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use as_text;
