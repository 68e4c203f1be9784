// SPDX-License-Identifier: GPL-2.0

//! `mflow top` on a terminal: it draws, follows keys, signals and sizes, and leaves the terminal as it was.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use mflow_command::top::screen::on_screen;
use ratatui::text::Line;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{open, Mode, OFlags};
use rustix::process::{kill_process, Pid, Signal};
use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcgetattr, tcsetwinsize, LocalModes, Termios, Winsize};

const MFLOW: &str = env!("CARGO_BIN_EXE_mflow");
/// The time that anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// The variable of the environment that programs on such a terminal have.
const ON_TERMINAL: &str = "MFLOW_TEST_ON_TERMINAL";
const PANIC: &str = "the sky falls";

/// A terminal with a program on it.
struct Terminal {
    master: File,
    slave: OwnedFd,
    before: Termios,
    screen: vt100::Parser,
    program: Child,
}

fn size(rows: u16, columns: u16) -> (NonZeroU16, NonZeroU16) {
    let some = |number| NonZeroU16::new(number).expect("not 0");
    (some(rows), some(columns))
}

impl Terminal {
    /// Starts a program on a terminal of 24 rows with 80 columns, in a session of its own. Signals of the terminal come to the session
    /// that it controls.
    fn start(program: &str, args: &[&str], controls: bool) -> Self {
        Self::start_sized(program, args, controls, (24, 80))
    }

    /// Starts a program on a terminal that says that it has this size. What comes is shown on 24 rows with 80 columns.
    fn start_sized(program: &str, args: &[&str], controls: bool, size_said: (u16, u16)) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = open(&name, flags, Mode::empty()).expect("its other end");
        let before = tcgetattr(&slave).expect("settings");
        set_size(&slave, size_said.0, size_said.1);
        let end = || Stdio::from(slave.try_clone().expect("one more"));
        let program = Command::new("setsid")
            .args(controls.then_some("--ctty"))
            .arg(program)
            .args(args)
            .env("TERM", "xterm")
            // The text of a panic is to be on the screen, and not its callers.
            .env("RUST_BACKTRACE", "0")
            .env_remove("RUST_LIB_BACKTRACE")
            .env(ON_TERMINAL, "yes")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("started");
        let (rows, columns) = size(24, 80);
        Self {
            master: master.into(),
            slave,
            before,
            screen: vt100::Parser::new(rows, columns, 0),
            program,
        }
    }

    fn top(controls: bool) -> Self {
        Self::top_sized(controls, (24, 80))
    }

    fn top_sized(controls: bool, size_said: (u16, u16)) -> Self {
        let args = ["top", "--interval", "0.1"];
        let mut terminal = Self::start_sized(MFLOW, &args, controls, size_said);
        terminal.wait_for("cores", |screen| screen.contents().contains("softirq"));
        let settings = tcgetattr(&terminal.slave).expect("settings");
        let usual = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        assert!(!settings.local_modes.intersects(usual));
        assert!(terminal.screen.screen().alternate_screen());
        assert!(terminal.screen.screen().hide_cursor());
        terminal
    }

    /// Shows what the program has written, if it writes something soon.
    fn read(&mut self) -> bool {
        let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
        let time = Timespec::try_from(LOOK).expect("short");
        if poll(&mut fds, Some(&time)).expect("waited") == 0 {
            return false;
        }
        let mut bytes = [0; 4096];
        let number = self.master.read(&mut bytes).expect("read");
        self.screen.process(&bytes[..number]);
        true
    }

    fn wait_for(&mut self, what: &str, is_there: impl Fn(&vt100::Screen) -> bool) {
        let begin = Instant::now();
        while !is_there(self.screen.screen()) {
            let shown = self.screen.screen().contents();
            assert!(begin.elapsed() < LIMIT, "no {what} on the screen: {shown}");
            self.read();
        }
    }

    fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("typed");
    }

    /// Waits until the program has ended, and checks that the terminal is as before.
    fn end(mut self) -> (ExitStatus, String) {
        let begin = Instant::now();
        let status = loop {
            self.read();
            if let Some(status) = self.program.try_wait().expect("a child") {
                break status;
            }
            assert!(begin.elapsed() < LIMIT, "it does not end");
        };
        while self.read() {}
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        let after = tcgetattr(&self.slave).expect("settings");
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        assert_eq!(after.control_modes, self.before.control_modes);
        assert_eq!(after.local_modes, self.before.local_modes);
        (status, screen.contents())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _already_ended = self.program.kill();
        let _already_ended = self.program.wait();
    }
}

fn set_size(slave: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(slave, size).expect("a size");
}

#[test]
fn q_and_control_c_end_it() {
    for key in ["q", "\x03"] {
        let mut terminal = Terminal::top(true);
        terminal.keys(key);
        let (status, shown) = terminal.end();
        assert!(status.success(), "{status}");
        assert_eq!(shown, "", "something is left on the screen");
    }
}

#[test]
fn signals_end_it_as_q_does() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let terminal = Terminal::top(true);
        kill_process(Pid::from_child(&terminal.program), signal).expect("signalled");
        let (status, _) = terminal.end();
        assert!(status.success(), "{status}");
    }
}

/// Waits until the program has drawn something that was not there before: a text of another program on its screen goes.
fn wait_until_redrawn(terminal: &mut Terminal) {
    terminal.screen.process(b"\x1b[12;1Hdisk full\x1b[1;1H");
    terminal.keys("\x0c");
    terminal.wait_for("redrawn picture", |screen| {
        let contents = screen.contents();
        !contents.contains("disk full") && contents.contains("softirq")
    });
}

/// Some keys are the begin of others, and some bytes are no keys.
#[test]
fn no_key_keeps_it_from_drawing_and_ending() {
    for bytes in [
        "\x1b[", "\x1b", "\x1bO", "\x1b[E", "\x1b[a", "\x1bOa", "\u{e4}",
    ] {
        let mut terminal = Terminal::top(true);
        terminal.keys(bytes);
        thread::sleep(LOOK);
        // Cores' numbers change in any case: it draws if it fills another size.
        let (rows, columns) = size(20, 70);
        terminal.screen.set_size(rows, columns);
        set_size(&terminal.slave, 20, 70);
        terminal.wait_for("line of keys", |screen| {
            let contents = screen.contents();
            let line = contents.lines().nth(19);
            line.is_some_and(|line| line.starts_with("q ends"))
        });
        kill_process(Pid::from_child(&terminal.program), Signal::TERM).expect("signalled");
        let (status, _) = terminal.end();
        assert!(status.success(), "{bytes:?}: {status}");
    }
}

#[test]
fn it_ends_without_its_terminal_after_half_a_key() {
    let mut terminal = Terminal::top(false);
    terminal.keys("\x1b[");
    thread::sleep(LOOK);
    ends_without_terminal(terminal);
}

/// The text is longer than what is read at once, and than what the terminal keeps.
#[test]
fn it_goes_on_after_a_text_that_is_pasted() {
    let mut terminal = Terminal::top(true);
    for _ in 0..20 {
        terminal.keys(&"x".repeat(1000));
        terminal.read();
    }
    wait_until_redrawn(&mut terminal);
    let time = || cpu_ticks(&terminal.program);
    let before = time();
    thread::sleep(Duration::from_secs(2));
    let ticks = time() - before;
    // A tick is a hundredth of a second.
    assert!(ticks < 100, "it took {ticks} ticks of 200");
    terminal.keys("q");
    assert!(terminal.end().0.success());
}

/// Returns the time that a program took of a CPU, in ticks: the fields 14 and 15 of proc_pid_stat(5).
fn cpu_ticks(program: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", program.id())).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let fields = fields.split_whitespace().skip(11).take(2);
    fields
        .map(|field| field.parse::<u64>().expect("ticks"))
        .sum()
}

#[test]
fn control_l_draws_all_again() {
    let mut terminal = Terminal::top(true);
    wait_until_redrawn(&mut terminal);
    terminal.keys("q");
    assert!(terminal.end().0.success());
}

#[test]
fn a_terminal_without_a_size_has_the_usual_one() {
    let mut terminal = Terminal::top_sized(true, (0, 0));
    terminal.wait_for("line of keys", |screen| {
        let contents = screen.contents();
        let line = contents.lines().nth(23);
        line.is_some_and(|line| line.starts_with("q ends"))
    });
    // This clears a screen whose size is unknown.
    wait_until_redrawn(&mut terminal);
    terminal.keys("q");
    assert!(terminal.end().0.success());
    let args = ["top", "--once", "--interval", "0.1"];
    let terminal = Terminal::start_sized(MFLOW, &args, true, (0, 0));
    let (_, shown) = terminal.end();
    assert!(shown.lines().any(|line| line.len() > 40), "{shown}");
}

#[test]
fn it_fills_a_terminal_of_another_size() {
    let mut terminal = Terminal::top(true);
    let last_row = |row: usize| {
        move |screen: &vt100::Screen| {
            let contents = screen.contents();
            let line = contents.lines().nth(row);
            line.is_some_and(|line| line.starts_with("q ends"))
        }
    };
    terminal.wait_for("line of keys", last_row(23));
    for (rows, columns) in [(40, 120), (3, 10), (24, 80)] {
        let (to_rows, to_columns) = size(rows, columns);
        terminal.screen.set_size(to_rows, to_columns);
        set_size(&terminal.slave, rows, columns);
        terminal.wait_for("line of keys", last_row(usize::from(rows) - 1));
    }
    terminal.keys("q");
    assert!(terminal.end().0.success());
}

/// A program whose terminal has gone would read from it for ever.
#[test]
fn it_ends_without_its_terminal() {
    ends_without_terminal(Terminal::top(false));
}

fn ends_without_terminal(mut terminal: Terminal) {
    // Both ends are closed here.
    terminal.master = File::open("/dev/null").expect("there");
    terminal.slave = File::open("/dev/null").expect("there").into();
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = terminal.program.try_wait().expect("a child") {
            break status;
        }
        assert!(begin.elapsed() < LIMIT, "it does not end");
        thread::sleep(LOOK);
    };
    assert!(status.success(), "{status}");
}

#[test]
fn a_panic_is_read_on_the_terminal_as_it_was() {
    let own = std::env::current_exe().expect("this program");
    let args = ["--exact", "panics_on_the_screen", "--nocapture"];
    let mut terminal = Terminal::start(&own.to_string_lossy(), &args, true);
    terminal.wait_for("panic", |screen| screen.contents().contains(PANIC));
    let (status, shown) = terminal.end();
    assert!(!status.success() && shown.contains(PANIC), "{shown}");
}

/// The program of the test above, which starts it on a terminal; elsewhere it does nothing.
#[test]
fn panics_on_the_screen() {
    if std::env::var_os(ON_TERMINAL).is_none() {
        return;
    }
    on_screen(|terminal| {
        terminal.draw(|frame| frame.render_widget(Line::from("calm"), frame.area()))?;
        panic!("{PANIC}");
    })
    .expect("it has panicked");
}

#[test]
fn without_a_terminal_it_says_what_to_type() {
    let output = Command::new(MFLOW).arg("top").stdin(Stdio::null()).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("mflow top --once"), "{said}");
}

#[test]
fn one_look_is_text_and_looks_are_lines_of_json() {
    let once = ["top", "--once", "--interval", "0.1"];
    let output = Command::new(MFLOW).args(once).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("softirq"), "{text}");
    let mut program = Command::new(MFLOW)
        .args(["top", "--json", "--interval", "0.1"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(program.stdout.take().expect("a pipe")).lines();
    for _ in 0..2 {
        let line = lines.next().expect("a line").expect("read");
        let sample: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let status = if sample["status"]["loaded"] == true {
            0
        } else {
            3
        };
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert!(sample["cores"]
            .as_array()
            .is_some_and(|all| !all.is_empty()));
    }
    // Nobody reads it any more.
    drop(lines);
    assert!(program.wait().expect("a child").success());
}
