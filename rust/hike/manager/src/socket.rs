// SPDX-License-Identifier: GPL-2.0

//! The socket of the daemon, which takes its place from nobody who listens there.
//!
//! A file beside the socket is locked for as long as the daemon runs: of two daemons that start at once, one is refused. That file
//! stays when the daemon has ended. If it were removed, a third daemon could lock a new one while the second has the old one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context as _, Result};
use rustix::fs::OFlags;
use tokio::net::{UnixListener, UnixStream};

/// The end of the name of the file that is locked.
const LOCK: &str = ".lock";
const ROOT_ALONE: u32 = 0o600;

/// A socket's place, which no other daemon takes as long as this lives.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// The file system and the number of the file that this has made, once there is one.
    made: Option<(u64, u64)>,
    /// Held as long as it is open.
    _lock: File,
}

impl Place {
    /// Takes a place. Fails if somebody listens there, or if anything but a socket is there: all of that stays.
    pub async fn take(path: &Path) -> Result<Self> {
        let lock = lock(path)?;
        clear(path).await?;
        Ok(Self {
            path: path.to_owned(),
            made: None,
            _lock: lock,
        })
    }

    /// Begins to listen, for root alone.
    pub async fn listen(&mut self) -> Result<UnixListener> {
        // Others may have come since.
        clear(&self.path).await?;
        let cannot = || format!("cannot listen at {}", self.path.display());
        let listener = UnixListener::bind(&self.path).with_context(cannot)?;
        let permissions = Permissions::from_mode(ROOT_ALONE);
        fs::set_permissions(&self.path, permissions).with_context(cannot)?;
        self.made = file_at(&self.path);
        Ok(listener)
    }

    /// Removes the socket, unless another one has come to its place.
    pub fn leave(self) -> Result<()> {
        if self.made.is_none() || file_at(&self.path) != self.made {
            return Ok(());
        }
        fs::remove_file(&self.path)
            .with_context(|| format!("cannot remove {}", self.path.display()))
    }
}

/// Returns the file system and the number of the file at a path, if there is one.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    let there = fs::symlink_metadata(path).ok()?;
    Some((there.dev(), there.ino()))
}

/// Removes a socket at which nobody listens any more; fails with what else is there.
async fn clear(path: &Path) -> Result<()> {
    let there = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        there => there.with_context(|| format!("cannot look at {}", path.display()))?,
    };
    ensure!(
        there.file_type().is_socket(),
        "{} is there and is no socket; remove it, or take another place with --socket",
        path.display()
    );
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        // One that cannot take another connection, or speaks another protocol, listens, too.
        Ok(_) | Err(_) => bail!(
            "another program listens at {}; end that, or take another place with --socket",
            path.display()
        ),
    }
    fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
}

fn lock(socket: &Path) -> Result<File> {
    let mut path = OsString::from(socket);
    path.push(LOCK);
    let path = PathBuf::from(path);
    // What is there already is locked as it is.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(ROOT_ALONE)
        // CAST: the same bits.
        .custom_flags(flags.bits() as i32)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "another hiked has {}; end that, or take another place with --socket",
            socket.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net as blocking;

    use super::*;

    /// A new folder, until the end of the scope.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("mflow-hiked-socket-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir(&folder).expect("new");
            Self(folder)
        }

        fn socket(&self) -> PathBuf {
            self.0.join("hiked.sock")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    async fn refused(path: &Path) -> String {
        let taken = Place::take(path).await;
        let said = taken.expect_err("it has to be refused").to_string();
        said.replace(&path.display().to_string(), "PATH")
    }

    #[tokio::test]
    async fn a_socket_at_which_somebody_listens_stays() {
        let folder = Folder::new("live");
        let path = folder.socket();
        let _listener = blocking::UnixListener::bind(&path).expect("new");
        assert_eq!(
            refused(&path).await,
            "another program listens at PATH; end that, or take another place with --socket"
        );
        assert!(blocking::UnixStream::connect(&path).is_ok());
        // One without connections is somebody's, too.
        fs::remove_file(&path).expect("there");
        let _socket = blocking::UnixDatagram::bind(&path).expect("new");
        assert!(refused(&path).await.starts_with("another program listens"));
        assert!(path.exists());
    }

    #[tokio::test]
    async fn what_is_no_socket_stays() {
        let folder = Folder::new("file");
        let path = folder.socket();
        let expected =
            "PATH is there and is no socket; remove it, or take another place with --socket";
        fs::write(&path, "of somebody").expect("new");
        assert_eq!(refused(&path).await, expected);
        assert_eq!(fs::read(&path).expect("there"), b"of somebody");
        fs::remove_file(&path).expect("there");
        symlink("elsewhere", &path).expect("new");
        assert_eq!(refused(&path).await, expected);
        assert!(fs::read_link(&path).is_ok());
    }

    #[tokio::test]
    async fn a_socket_that_was_left_behind_is_replaced() {
        let folder = Folder::new("stale");
        let path = folder.socket();
        drop(blocking::UnixListener::bind(&path).expect("new"));
        let mut place = Place::take(&path).await.expect("nobody listens");
        let listener = place.listen().await.expect("free");
        assert!(blocking::UnixStream::connect(&path).is_ok());
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(listener);
        place.leave().expect("its own");
        assert!(!path.exists());
        // The lock is free again.
        assert!(Place::take(&path).await.is_ok());
    }

    #[tokio::test]
    async fn of_two_daemons_one_is_refused() {
        let folder = Folder::new("two");
        let path = folder.socket();
        let first = Place::take(&path).await.expect("free");
        let expected = "another hiked has PATH; end that, or take another place with --socket";
        assert_eq!(refused(&path).await, expected);
        drop(first);
        assert!(Place::take(&path).await.is_ok());
    }

    #[tokio::test]
    async fn a_socket_that_has_come_to_its_place_stays() {
        let folder = Folder::new("other");
        let path = folder.socket();
        let mut place = Place::take(&path).await.expect("free");
        let _listener = place.listen().await.expect("free");
        // Not removed, so that the other file has another number.
        fs::rename(&path, folder.0.join("moved")).expect("there");
        let _other = blocking::UnixListener::bind(&path).expect("new");
        place.leave().expect("nothing to do");
        assert!(blocking::UnixStream::connect(&path).is_ok());
    }
}
