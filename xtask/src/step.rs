// SPDX-License-Identifier: GPL-2.0

//! One long command: progress on the terminal, everything else in a log file.

use std::borrow::Cow;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::paths;

/// The number of a log's last lines that go into an error.
const TAIL_LINES: usize = 25;

/// The longest interval at which the log of a running command is read.
const POLL: Duration = Duration::from_millis(100);

/// The bars of all steps that run at the same time.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// A command to run, as the user sees it.
pub struct Step {
    title: String,
    log_name: String,
    hint: String,
    count_lines: bool,
}

/// A command that failed: all that is needed to go on.
#[derive(Debug)]
pub(crate) struct Failed {
    /// The command, to be pasted into a shell.
    pub(crate) command: String,
    pub(crate) status: String,
    /// The last lines it wrote.
    pub(crate) tail: String,
    pub(crate) log: PathBuf,
    pub(crate) hint: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "command failed ({}):\n  {}", self.status, self.command)?;
        if !self.tail.is_empty() {
            writeln!(f, "last lines of its output:")?;
            for line in self.tail.lines() {
                writeln!(f, "  | {line}")?;
            }
        }
        write!(f, "log:  {}", self.log.display())?;
        if !self.hint.is_empty() {
            write!(f, "\ntry:  {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failed {}

impl Step {
    /// Returns a step called `title` that logs to `CACHE/logs/<log_name>.log`.
    pub fn new(title: impl Into<String>, log_name: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            log_name: log_name.into(),
            hint: String::new(),
            count_lines: false,
        }
    }

    /// Sets what a failure says to try next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Shows a bar: as many lines as the last successful run of this step wrote are 100 %.
    ///
    /// It is for full builds: an incremental one writes few lines and says nothing about the next full one.
    pub(crate) fn count_lines(mut self) -> Self {
        self.count_lines = true;
        self
    }

    /// Runs the command to its end; anything but exit status 0 is a [`Failed`].
    ///
    /// Returns the path of the log.
    pub fn run(self, command: &mut Command) -> Result<PathBuf> {
        let log = paths::logs()?.join(format!("{}.log", self.log_name));
        let line = shell_line(command);
        let mut file =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        writeln!(file, "$ {line}")?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);

        let memory = log.with_extension("lines");
        let expected = self.count_lines.then(|| remembered(&memory)).flatten();
        let progress = StepProgress::start(&self.title, expected);
        let outcome = wait(command, &log, &progress).with_context(|| format!("cannot run: {line}"));
        let (status, lines) = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                progress.end("failed");
                return Err(match self.hint.as_str() {
                    "" => error,
                    hint => anyhow::anyhow!("{error:#}\ntry:  {hint}"),
                });
            }
        };
        if status.success() {
            progress.end("done");
            if self.count_lines {
                fs::write(&memory, lines.to_string())?;
            }
            return Ok(log);
        }
        progress.end("failed");
        Err(Failed {
            command: line,
            status: status.to_string(),
            tail: tail(&log),
            log,
            hint: self.hint,
        }
        .into())
    }
}

/// Runs `work`, which is no command of its own, under a spinner called `title`.
pub fn work<T>(title: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let progress = StepProgress::start(title, None);
    let result = work();
    progress.end(if result.is_ok() { "done" } else { "failed" });
    result
}

pub(crate) fn tail(log: &Path) -> String {
    let Ok(bytes) = fs::read(log) else {
        return String::new();
    };
    let text = String::from_utf8_lossy(&bytes);
    // The first line is the command, which an error shows anyway.
    let lines: Vec<&str> = text.lines().skip(1).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Returns the command with its folder and variables as a shell would take it.
pub(crate) fn shell_line(command: &Command) -> String {
    let mut words = Vec::new();
    if let Some(dir) = command.get_current_dir() {
        words.push(format!("cd {} &&", quote(&dir.to_string_lossy())));
    }
    for (name, value) in command.get_envs() {
        let (Some(value), name) = (value, name.to_string_lossy()) else {
            continue;
        };
        match &*name {
            "LC_ALL" => {}
            // Only what `tools::command` puts before the user's own is shown.
            "PATH" => words.push(format!(
                "PATH={}:$PATH",
                paths::tools().join("bin").display()
            )),
            _ => words.push(format!("{name}={}", quote(&value.to_string_lossy()))),
        }
    }
    words.push(quote(&command.get_program().to_string_lossy()).into_owned());
    words.extend(
        command
            .get_args()
            .map(|arg| quote(&arg.to_string_lossy()).into_owned()),
    );
    words.join(" ")
}

/// Quotes a word. One that no shell can take, with a NUL in it, stays as it is: the line is for people.
fn quote(word: &str) -> Cow<'_, str> {
    shlex::try_quote(word).unwrap_or(Cow::Borrowed(word))
}

fn remembered(memory: &Path) -> Option<u64> {
    fs::read_to_string(memory).ok()?.trim().parse().ok()
}

/// Waits for the command and reports every line that reaches its log; returns how many there were.
fn wait(command: &mut Command, log: &Path, progress: &StepProgress) -> Result<(ExitStatus, u64)> {
    let mut child = command.spawn()?;
    let mut reader = BufReader::new(File::open(log)?);
    let mut line = Vec::new();
    let mut lines = 0;
    // Short commands shall not wait a whole poll.
    let mut pause = Duration::from_millis(2);
    loop {
        let status = child.try_wait()?;
        while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            lines += 1;
            progress.line(&String::from_utf8_lossy(&line));
            line.clear();
        }
        if let Some(status) = status {
            return Ok((status, lines));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(POLL);
    }
}

/// The progress that the user sees while a step runs: a bar on a terminal, one line at either end elsewhere.
struct StepProgress {
    title: String,
    start: Instant,
    bar: Option<ProgressBar>,
}

impl StepProgress {
    fn start(title: &str, lines: Option<u64>) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            BARS.add(match lines {
                Some(lines) => {
                    let style = "{elapsed:>4} {prefix} [{bar:24}] {percent:>3} % {wide_msg:.dim}";
                    bar(ProgressBar::new(lines), style)
                }
                None => bar(
                    ProgressBar::new_spinner(),
                    "{elapsed:>4} {spinner} {prefix} {wide_msg:.dim}",
                ),
            })
        });
        match &bar {
            Some(bar) => {
                bar.set_prefix(title.to_owned());
                bar.enable_steady_tick(Duration::from_millis(200));
            }
            None => eprintln!("start  {title}"),
        }
        Self {
            title: title.to_owned(),
            start: Instant::now(),
            bar,
        }
    }

    fn line(&self, line: &str) {
        let Some(bar) = &self.bar else { return };
        if let Some(length) = bar.length() {
            // The last run's number is an estimate: 100 % is only reached at the end.
            bar.set_position((bar.position() + 1).min(length.saturating_sub(1)));
        } else {
            bar.inc(1);
        }
        bar.set_message(line.trim().to_owned());
    }

    fn end(&self, how: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let seconds = self.start.elapsed().as_secs_f64();
        BARS.suspend(|| eprintln!("{how:<6} {} ({seconds:.1} s)", self.title));
    }
}

fn bar(bar: ProgressBar, style: &str) -> ProgressBar {
    match ProgressStyle::with_template(style) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
