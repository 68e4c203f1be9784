// SPDX-License-Identifier: GPL-2.0

//! The sentences that the module writes into the kernel's log when it refuses a value, or remarks on one. The kernel leaves out
//! sentences that come too often, so there may be none.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// The kernel gives out one record at a time, which is not longer.
const RECORD_BYTES: usize = 8192;
/// The records that are looked at, at most: what is looked for comes first.
const MOST_RECORDS: usize = 1_000;
/// The words in front of the module's sentences.
const PREFIX: &str = "mflow: ";

/// The log from a moment on.
#[derive(Debug)]
pub struct KernelLog(Option<File>);

impl KernelLog {
    /// Opens the log behind its last record. Without a log, there is nothing in it.
    pub fn from_now(root: &Path) -> Self {
        let file = OpenOptions::new()
            .read(true)
            // CAST: flags are positive.
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(root.join("dev/kmsg"))
            .and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file));
        Self(file.ok())
    }

    /// Returns the module's sentences since then.
    pub fn sentences(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        let mut record = [0; RECORD_BYTES];
        let Some(log) = &mut self.0 else {
            return found;
        };
        for _ in 0..MOST_RECORDS {
            match log.read(&mut record) {
                Ok(0) => break,
                Ok(bytes) => found.extend(sentence(&String::from_utf8_lossy(&record[..bytes]))),
                // What has been overwritten meanwhile is passed over.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
        found
    }
}

/// Returns the module's sentence in a record such as `4,339,5140900,-;mflow: batch_pkts: allowed 1 to 4096 packets`.
fn sentence(record: &str) -> Option<String> {
    let (_, text) = record.split_once(';')?;
    // Lines behind the first one are about devices.
    let line = text.lines().next()?;
    line.strip_prefix(PREFIX).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_of_the_module_are_found() {
        let record =
            "4,339,5140900,-;mflow: batch_pkts: allowed 1 to 4096 packets\n SUBSYSTEM=net\n";
        let expected = "batch_pkts: allowed 1 to 4096 packets";
        assert_eq!(sentence(record).as_deref(), Some(expected));
        assert_eq!(sentence("6,340,5140901,-;eth0: mflow: up\n"), None);
        assert_eq!(sentence("mflow: no record"), None);
    }

    #[test]
    fn without_a_log_there_is_no_sentence() {
        let mut none = KernelLog::from_now(Path::new("/nonexistent"));
        assert!(none.sentences().is_empty());
    }
}
