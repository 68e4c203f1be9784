// SPDX-License-Identifier: GPL-2.0

//! The output of the guest on a serial port, which QEMU keeps in a file: complete lines as they come.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub(crate) struct Serial {
    path: PathBuf,
    file: File,
    partial: Vec<u8>,
}

impl Serial {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        File::create(path)?;
        Ok(Self {
            path: path.to_path_buf(),
            file: File::open(path)?,
            partial: Vec::new(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the lines that have been completed since the last call.
    pub(crate) fn lines(&mut self) -> io::Result<Vec<String>> {
        self.file.read_to_end(&mut self.partial)?;
        let Some(end) = self.partial.iter().rposition(|&byte| byte == b'\n') else {
            return Ok(Vec::new());
        };
        let complete: Vec<u8> = self.partial.drain(..=end).collect();
        let text = String::from_utf8_lossy(&complete);
        Ok(text
            .lines()
            .map(|line| line.trim_end_matches('\r').to_owned())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn only_complete_lines_are_returned() {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("port");
        let mut serial = Serial::create(&path).expect("file");
        let mut writer = File::options().append(true).open(&path).expect("file");
        writer.write_all(b"one\r\ntw").expect("write");
        assert_eq!(serial.lines().expect("lines"), ["one"]);
        assert!(serial.lines().expect("lines").is_empty());
        writer.write_all(b"o\nthree\n").expect("write");
        assert_eq!(serial.lines().expect("lines"), ["two", "three"]);
    }
}
