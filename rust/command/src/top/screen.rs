// SPDX-License-Identifier: GPL-2.0

//! The terminal: it shows what is seen until somebody ends it, and is then as it was before.

use std::io::{stdin, stdout, IsTerminal as _};
use std::mem;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::EnterAlternateScreen;
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, TerminalOptions, Viewport};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::{read, Errno};
use rustix::termios::tcgetwinsize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::draw;
use super::keys::{Key, Keys};
use super::view::{Order, View, Wish};
use super::Watch;

/// The columns of text that goes into a file or to a program.
const WITHOUT_TERMINAL: u16 = 120;
/// The size of a terminal that does not know its own, as those on serial lines do not.
const USUAL: (u16, u16) = (80, 24);
/// The time after which the size of the terminal and signals are looked at in any case.
const PATIENCE: Duration = Duration::from_millis(500);
/// The time in which the bytes of one key come.
const ONE_KEY: Duration = Duration::from_millis(100);
/// The states of a terminal that has hung up. Reading from it would never end.
const GONE: PollFlags = PollFlags::HUP.union(PollFlags::ERR).union(PollFlags::NVAL);
/// The bytes that are read at once, so that a text that is pasted does not keep the program from looking.
const MOST_BYTES: usize = 1024;

/// Shows the host below `root`, with a look in each interval, until somebody types `q`, or a signal ends it.
pub fn show(root: &Path, interval: Duration) -> Result<()> {
    ensure!(
        stdin().is_terminal() && stdout().is_terminal(),
        "mflow top needs a terminal; without one, try: mflow top --once, or: mflow top --json"
    );
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).context("cannot take signals")?;
    }
    let mut watch = Watch::begin(root, interval)?;
    on_screen(|terminal| follow_keys(terminal, &mut watch, &ended))
}

/// Returns the columns of the terminal, or how many text has without one.
pub fn width() -> u16 {
    size().map_or(WITHOUT_TERMINAL, |(columns, _)| columns)
}

/// Returns the columns and rows of the terminal; nothing without one.
fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdout()).ok()?;
    let or_usual = |number, usual| if number == 0 { usual } else { number };
    Some((
        or_usual(size.ws_col, USUAL.0),
        or_usual(size.ws_row, USUAL.1),
    ))
}

fn area() -> Rect {
    let (columns, rows) = size().unwrap_or(USUAL);
    Rect::new(0, 0, columns, rows)
}

/// Gives the whole terminal to `run`, and sets it back when that ends: well, with an error, or with a panic.
pub fn on_screen(run: impl FnOnce(&mut DefaultTerminal) -> Result<()>) -> Result<()> {
    let terminal = take_screen().context("cannot use this terminal");
    let ran = terminal.and_then(|mut terminal| {
        let ran = run(&mut terminal);
        if is_gone() {
            // Its end would show the cursor again, and panic where that can't be done.
            mem::forget(terminal);
            return Ok(());
        }
        ran
    });
    let restored = ratatui::try_restore().context("cannot set the terminal back; try: reset");
    if is_gone() {
        return Ok(());
    }
    ran.and(restored)
}

fn take_screen() -> std::io::Result<DefaultTerminal> {
    // Its size is asked for here: ratatui would take one of 0 as it is.
    let viewport = Viewport::Fixed(area());
    // This also has panics set it back before they are printed.
    let mut terminal = ratatui::try_init_with_options(TerminalOptions { viewport })?;
    execute!(stdout(), EnterAlternateScreen)?;
    // A terminal without another screen has text on this one.
    terminal.resize(area())?;
    Ok(terminal)
}

fn follow_keys(
    terminal: &mut DefaultTerminal,
    watch: &mut Watch<'_>,
    ended: &AtomicBool,
) -> Result<()> {
    let mut view = View::default();
    let mut keys = Keys::default();
    let mut typed = Instant::now();
    loop {
        if terminal.get_frame().area() != area() {
            terminal.resize(area())?;
        }
        terminal.draw(|frame| {
            draw::draw(&watch.seen, &view, frame.area(), frame.buffer_mut());
        })?;
        let happened = wait(watch.left().min(PATIENCE))?;
        // ORDERING: Relaxed: nothing else is handed over.
        if happened.intersects(GONE) || ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        if typed.elapsed() > ONE_KEY {
            keys.forget();
        }
        if happened.contains(PollFlags::IN) {
            typed = Instant::now();
            let mut bytes = [0; MOST_BYTES];
            let Some(bytes) = typed_bytes(&mut bytes)? else {
                return Ok(());
            };
            let mut is_redrawn = false;
            for byte in bytes {
                match keys.take(*byte).and_then(meaning) {
                    Some(Meaning::End) => return Ok(()),
                    Some(Meaning::Redraw) => is_redrawn = true,
                    Some(Meaning::Show(wish)) => {
                        let flows = watch.seen.sample.flows.as_ref();
                        view.follow(wish, flows.map_or(0, |list| list.flows.len()));
                    }
                    None => {}
                }
            }
            if is_redrawn {
                // This clears the screen, and has all of it drawn. `clear()` would ask the terminal where its cursor is.
                terminal.resize(area())?;
            }
        }
        if watch.left().is_zero() {
            watch.look()?;
        }
    }
}

/// Reads once what was typed; nothing if the terminal has hung up.
fn typed_bytes(bytes: &mut [u8]) -> Result<Option<&[u8]>> {
    match read(stdin(), &mut *bytes) {
        Ok(0) | Err(Errno::IO) => Ok(None),
        Ok(number) => Ok(bytes.get(..number)),
        Err(Errno::INTR | Errno::AGAIN) => Ok(Some(&[])),
        Err(error) => Err(error).context("cannot read keys"),
    }
}

/// Waits for a key or a signal, and returns what has happened to the terminal.
fn wait(time: Duration) -> Result<PollFlags> {
    let stdin = stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut fds, Some(&Timespec::try_from(time)?)) {
        Ok(_) => Ok(fds[0].revents()),
        Err(Errno::INTR) => Ok(PollFlags::empty()),
        Err(error) => Err(error).context("cannot wait for keys"),
    }
}

/// Returns whether the terminal has hung up.
fn is_gone() -> bool {
    wait(Duration::ZERO).is_ok_and(|happened| happened.intersects(GONE))
}

/// The meaning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    End,
    Redraw,
    Show(Wish),
}

/// Returns the meaning of a key, if it has one.
fn meaning(key: Key) -> Option<Meaning> {
    let wish = match key {
        Key::Interrupt | Key::Char('q') => return Some(Meaning::End),
        Key::Redraw => return Some(Meaning::Redraw),
        Key::Char('r') => Wish::Turn,
        Key::Char(key) => {
            let mut orders = Order::ALL.iter();
            Wish::Sort(orders.find(|(of, ..)| *of == key)?.1)
        }
        Key::Up => Wish::Up,
        Key::Down => Wish::Down,
        Key::PageUp => Wish::PageUp,
        Key::PageDown => Wish::PageDown,
        Key::Home => Wish::First,
    };
    Some(Meaning::Show(wish))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_order_has_the_key_of_another_wish() {
        for (key, order, _) in Order::ALL {
            let sorts = Meaning::Show(Wish::Sort(order));
            assert_eq!(meaning(Key::Char(key)), Some(sorts), "{key}");
        }
        assert_eq!(meaning(Key::Char('x')), None);
    }
}
