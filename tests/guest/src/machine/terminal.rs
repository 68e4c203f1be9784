// SPDX-License-Identifier: GPL-2.0

//! A terminal with a program on it, as a person has it: keys go in, and a screen comes out.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{ensure, Context as _, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::pty::{openpty, Winsize};
use nix::sys::termios::{tcgetattr, LocalFlags, Termios};

use crate::machine::command::START;

const ROWS: u16 = 40;
const COLUMNS: u16 = 200;
const LOOK_MS: u8 = 20;

/// A terminal of 40 rows with 200 columns. The program on it is killed if it is there at the end.
pub(crate) struct Terminal {
    line: String,
    master: File,
    slave: OwnedFd,
    before: Termios,
    screen: vt100::Parser,
    program: Child,
}

impl Terminal {
    /// Starts a command line (split at white space) that the terminal belongs to.
    pub(crate) fn start(line: &str) -> Result<Self> {
        let size = Winsize {
            ws_row: ROWS,
            ws_col: COLUMNS,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(Some(&size), None::<&Termios>).context("cannot make a terminal")?;
        let before = tcgetattr(&pair.slave)?;
        let end = || pair.slave.try_clone().map(Stdio::from);
        let program = Command::new("setsid")
            .arg("--ctty")
            .args(line.split_whitespace())
            .env("TERM", "xterm")
            .stdin(end()?)
            .stdout(end()?)
            .stderr(end()?)
            .spawn()
            .with_context(|| format!("cannot run {line}"))?;
        let number = |number| NonZeroU16::new(number).context("no size");
        Ok(Self {
            line: line.to_owned(),
            master: pair.master.into(),
            before,
            slave: pair.slave,
            screen: vt100::Parser::new(number(ROWS)?, number(COLUMNS)?, 0),
            program,
        })
    }

    /// Waits until the screen's text is like that.
    pub(crate) fn wait_for(&mut self, what: &str, is_it: impl Fn(&str) -> bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            let text = self.screen.screen().contents();
            if is_it(&text) {
                return Ok(());
            }
            ensure!(
                begin.elapsed() < START,
                "{} shows in vain, for {} s, until {what}: {text}",
                self.line,
                START.as_secs()
            );
            self.show()?;
        }
    }

    /// Shows what the program has written. Returns false if it has written nothing for a moment.
    fn show(&mut self) -> Result<bool> {
        // The other end is open here, too, so there is always one to read from.
        let mut fds = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::from(LOOK_MS))? == 0 {
            return Ok(false);
        }
        let mut bytes = [0; 4096];
        let number = self.master.read(&mut bytes)?;
        self.screen.process(&bytes[..number]);
        Ok(true)
    }

    /// Types keys.
    pub(crate) fn keys(&mut self, keys: &str) -> Result<()> {
        Ok(self.master.write_all(keys.as_bytes())?)
    }

    /// Fails unless the program has the whole screen, and each key at once.
    pub(crate) fn require_taken(&self) -> Result<()> {
        let lines = LocalFlags::ICANON | LocalFlags::ECHO;
        let settings = tcgetattr(&self.slave)?;
        ensure!(
            self.screen.screen().alternate_screen() && !settings.local_flags.intersects(lines),
            "{} has not taken the terminal: {:?}",
            self.line,
            settings.local_flags
        );
        Ok(())
    }

    /// Waits until the program has ended well, and fails unless it has left the terminal as it was.
    pub(crate) fn require_left(mut self) -> Result<()> {
        let begin = Instant::now();
        let status = loop {
            self.show()?;
            if let Some(status) = self.program.try_wait()? {
                break status;
            }
            ensure!(begin.elapsed() < START, "{} does not end", self.line);
        };
        while self.show()? {}
        let screen = self.screen.screen();
        let settings = |of: &Termios| (of.input_flags, of.output_flags, of.local_flags);
        let (before, after) = (settings(&self.before), settings(&tcgetattr(&self.slave)?));
        ensure!(
            status.success() && !screen.alternate_screen() && !screen.hide_cursor(),
            "{} has ended with {status}, and left this: {}",
            self.line,
            screen.contents()
        );
        ensure!(
            before == after,
            "{} has left the terminal with other settings: {after:?}, before: {before:?}",
            self.line
        );
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _already_ended = self.program.kill();
        let _already_ended = self.program.wait();
    }
}
