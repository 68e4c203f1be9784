// SPDX-License-Identifier: GPL-2.0

//! The note that a generation keeps about itself, for those who find it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use mflow_hike::counters::reason;
use mflow_hike::{chain_programs, fingerprint, Hike};
use serde::{Deserialize, Serialize};

use crate::configuration::file::parse_applied;
use crate::configuration::Configuration;
use crate::fill::CountNumbers;

/// The note, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The fingerprint of the generation's programs: those of its maker's version.
    pub(crate) fingerprint: u64,
    /// The names of its reasons, in the order of its counters.
    pub(crate) reasons: Vec<String>,
    /// The kernel's numbers of the programs that its chains begin with, by place.
    pub(crate) chain_programs: BTreeMap<u32, u32>,
    /// The numbers under which its local SIDs are counted; versions that do not count them have none.
    #[serde(default)]
    pub(crate) sids: CountNumbers,
    /// The configuration that was applied, as a file has it.
    configuration: String,
}

impl Note {
    /// Writes that of an instance that is filled.
    pub(crate) fn of(
        hike: &Hike,
        configuration: &Configuration,
        sids: CountNumbers,
    ) -> Result<Self> {
        Ok(Self {
            sids,
            fingerprint: fingerprint(),
            reasons: own_reasons(),
            chain_programs: chain_programs(hike.folder())?,
            configuration: configuration.to_toml(),
        })
    }

    pub(crate) fn read(text: &[u8]) -> Result<Self> {
        serde_json::from_slice(text).context("its note is not one of this version")
    }

    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    pub(crate) fn configuration(&self) -> Result<Configuration> {
        Ok(parse_applied(Path::new("note"), &self.configuration)?)
    }

    /// Returns whether its programs are those of this program.
    pub(crate) fn is_of_this_version(&self) -> bool {
        self.fingerprint == fingerprint()
    }

    /// Returns whether its counters stand for the same reasons as those of this program.
    pub(crate) fn has_same_reasons(&self) -> bool {
        self.reasons == own_reasons()
    }
}

fn own_reasons() -> Vec<String> {
    let reasons = reason::reasons().iter();
    reasons.map(|reason| reason.name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_of_an_earlier_version_is_read() {
        let configuration = "[chains]\na = \"drop\"\n[monitors]\n\
             m = { direction = \"out\", source = \"fd00::1\", sids = [\"fc00::1\"] }";
        let note = serde_json::json!({
            "fingerprint": 1,
            "reasons": [],
            "chain_programs": {},
            "configuration": configuration,
        });
        let note = Note::read(note.to_string().as_bytes()).expect("a note");
        assert!(!note.is_of_this_version());
        // Who writes this now is told that nothing would be counted.
        assert!(crate::configuration::file::parse(Path::new("f"), configuration).is_err());
        let configuration = note.configuration().expect("it was applied");
        assert_eq!(configuration.chains.len(), 1);
        assert_eq!(
            configuration.warnings(None),
            ["monitor m: it counts nothing any more; give it the flow-id of its packets, or a dscp-bit"]
        );
        assert!(configuration.checked().is_err());
    }
}
