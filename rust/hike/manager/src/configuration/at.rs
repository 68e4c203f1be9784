// SPDX-License-Identifier: GPL-2.0

//! The entry of a document to which a problem belongs, and readers for the fields of entries.

use std::net::{IpAddr, Ipv6Addr};

use super::objects::Kind;
use super::Problem;

pub(super) type Result<T> = std::result::Result<T, Problem>;

/// The entry to which a problem belongs.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) kind: Kind,
    pub(super) name: &'a str,
}

impl At<'_> {
    pub(super) fn problem(self, text: impl std::fmt::Display) -> Problem {
        Problem::new([self.kind.section(), self.name], text)
    }

    pub(super) fn problem_of(self, field: &str, text: impl std::fmt::Display) -> Problem {
        Problem::new([self.kind.section(), self.name, field], text)
    }

    /// Returns a number that may be left out if it is in the range.
    pub(super) fn number<T: TryFrom<i64>>(
        self,
        field: &str,
        number: Option<i64>,
        least: i64,
        most: i64,
    ) -> Result<Option<T>> {
        let Some(number) = number else {
            return Ok(None);
        };
        let good = (least..=most).contains(&number).then_some(number);
        let good = good.and_then(|number| T::try_from(number).ok());
        let text = || format!("{field} is {number}: {least} to {most} are allowed");
        good.map(Some).ok_or_else(|| self.problem_of(field, text()))
    }

    pub(super) fn address(self, field: &str, text: &str) -> Result<Ipv6Addr> {
        text.parse().map_err(|_| {
            self.problem_of(
                field,
                format!("{field} has `{text}`: an IPv6 address is allowed, such as 2001:db8::1"),
            )
        })
    }

    pub(super) fn any_address(self, field: &str, text: &str) -> Result<IpAddr> {
        text.parse().map_err(|_| {
            self.problem_of(
                field,
                format!(
                    "{field} has `{text}`: an IPv4 or IPv6 address is allowed, such as 10.0.0.1"
                ),
            )
        })
    }

    pub(super) fn addresses(self, field: &str, texts: &[String]) -> Result<Vec<Ipv6Addr>> {
        texts.iter().map(|text| self.address(field, text)).collect()
    }

    pub(super) fn mac(self, field: &str, text: &str) -> Result<[u8; 6]> {
        let bytes: Vec<Option<u8>> = text
            .split(':')
            .map(|byte| {
                u8::from_str_radix(byte, 16)
                    .ok()
                    .filter(|_| byte.len() == 2)
            })
            .collect();
        let bytes: Option<Vec<u8>> = bytes.into_iter().collect();
        let mac = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
        mac.ok_or_else(|| {
            self.problem_of(
                field,
                format!("{field} is `{text}`: an Ethernet address is allowed, such as 02:00:00:00:00:01"),
            )
        })
    }
}
