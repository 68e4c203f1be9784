// SPDX-License-Identifier: GPL-2.0

//! The file `flows`: what the module says of each fast flow.

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{ensure, Context as _, Result};

use crate::mflow;

/// One line: keys and values.
#[derive(Debug)]
pub(crate) struct Flow(BTreeMap<String, String>);

impl Flow {
    fn parse(line: &str) -> Result<Self> {
        // What follows is for people.
        let (pairs, _) = line.split_once(" # ").unwrap_or((line, ""));
        let words: Vec<&str> = pairs.split(' ').collect();
        ensure!(
            words.len().is_multiple_of(2) && words[0] == "device",
            "flows: not keys and values of a flow: {line:?}"
        );
        let pairs = words.chunks(2);
        Ok(Self(
            pairs
                .map(|pair| (pair[0].to_owned(), pair[1].to_owned()))
                .collect(),
        ))
    }

    /// Returns the text of this key; an empty one if there is none.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// Returns the number of this key; nothing if it is not known yet.
    pub(crate) fn number<T: FromStr>(&self, key: &str) -> Option<T> {
        self.text(key).parse().ok()
    }

    pub(crate) fn has(&self, pairs: &[(&str, &str)]) -> bool {
        pairs.iter().all(|&(key, value)| self.text(key) == value)
    }
}

/// Returns all flows that are listed.
pub(crate) fn read() -> Result<Vec<Flow>> {
    let text = mflow::read("flows")?;
    text.lines()
        .filter(|line| !line.starts_with("none "))
        .map(Flow::parse)
        .collect::<Result<_>>()
        .with_context(|| text.clone())
}

/// Returns whether a flow is listed that has all of these.
pub(crate) fn any(pairs: &[(&str, &str)]) -> Result<bool> {
    Ok(read()?.iter().any(|flow| flow.has(pairs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_up_to_the_words_for_people() {
        let flow = Flow::parse("device eth0 pps - gain 1.98 reason slow # its rate fell").unwrap();
        assert!(flow.has(&[("device", "eth0"), ("reason", "slow")]));
        assert!(!flow.has(&[("device", "eth0"), ("reason", "silent")]));
        assert_eq!(flow.number("gain"), Some(1.98));
        assert_eq!(flow.number::<u64>("pps"), None);
        Flow::parse("none split reason not_enabled # enabled is 0").unwrap_err();
    }
}
