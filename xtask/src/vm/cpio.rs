// SPDX-License-Identifier: GPL-2.0

//! An archive in the `newc` format of cpio, which is what the kernel unpacks as its initramfs.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// A writer that adds every parent folder by itself, once.
pub(crate) struct Archive<W> {
    out: W,
    inode: u32,
    written: u64,
    paths: BTreeSet<PathBuf>,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            inode: 0,
            written: 0,
            paths: BTreeSet::new(),
        }
    }

    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.paths.contains(path)
    }

    pub(crate) fn directory(&mut self, path: &Path) -> io::Result<()> {
        self.parents(path)?;
        self.entry(path, DIRECTORY | 0o755, &[])
    }

    pub(crate) fn file(&mut self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        self.parents(path)?;
        self.entry(path, FILE | (mode & 0o7777), content)
    }

    pub(crate) fn symlink(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        self.parents(path)?;
        self.entry(path, SYMLINK | 0o777, target.as_os_str().as_encoded_bytes())
    }

    /// Ends the archive and returns what it was written to.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.write("TRAILER!!!", 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn parents(&mut self, path: &Path) -> io::Result<()> {
        let mut parent = PathBuf::from("/");
        let mut components = path.components().peekable();
        while let Some(component) = components.next() {
            if let (Component::Normal(name), Some(_)) = (component, components.peek()) {
                parent.push(name);
                self.entry(&parent, DIRECTORY | 0o755, &[])?;
            }
        }
        Ok(())
    }

    /// Adds an entry unless there is one at this path.
    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        if !self.paths.insert(path.to_path_buf()) {
            return Ok(());
        }
        let name = path.to_string_lossy();
        self.write(name.trim_start_matches('/'), mode, content)
    }

    fn write(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(content.len())
            .map_err(|_| io::Error::other(format!("{name} is too large for a cpio archive")))?;
        let fields = [
            self.inode,
            mode,
            0, // user
            0, // group
            1, // links
            0, // time: none, so that the same content makes the same archive
            size,
            0, // device the file is on
            0,
            0, // device the file is
            0,
            name.len() as u32 + 1,
            0, // checksum, unused in this format
        ];
        let mut header = b"070701".to_vec();
        for field in fields {
            write!(header, "{field:08x}")?;
        }
        header.extend_from_slice(name.as_bytes());
        header.push(0);
        self.padded(&header)?;
        self.padded(content)
    }

    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.written += bytes.len() as u64;
        let padding = self.written.next_multiple_of(4) - self.written;
        self.written += padding;
        // CAST: at most three.
        self.out.write_all(&[0; 3][..padding as usize])
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn cpio_lists_what_was_added() {
        if Command::new("cpio").arg("--version").output().is_err() {
            return;
        }
        let mut archive = Archive::new(Vec::new());
        let shell = Path::new("/usr/bin/sh");
        archive.file(shell, 0o755, b"12345").expect("file");
        archive
            .symlink(Path::new("/bin"), Path::new("usr/bin"))
            .expect("link");
        archive.directory(Path::new("/usr/lib")).expect("folder");
        assert!(archive.contains(shell));
        let bytes = archive.finish().expect("end");
        let mut cpio = Command::new("cpio")
            .args(["--list", "--verbose", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cpio");
        cpio.stdin
            .take()
            .expect("pipe")
            .write_all(&bytes)
            .expect("write");
        let output = cpio.wait_with_output().expect("wait");
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_whitespace().nth(8))
            .collect();
        assert_eq!(names, ["usr", "usr/bin", "usr/bin/sh", "bin", "usr/lib"]);
        assert!(text.contains("-rwxr-xr-x") && text.contains("bin -> usr/bin"));
    }
}
