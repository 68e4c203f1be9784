// SPDX-License-Identifier: GPL-2.0

//! The command. Its help says with which status it ends. It ends with 0, too, when nobody reads its output any more.

#![deny(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{bail, Context as _, Result};
use mflow_command::change::{names, steps, ChangeError, Step, Wish};
use mflow_command::confirm::{self, Lock};
use mflow_command::diagnose::{read, Diagnosis};
use mflow_command::file::Settings;
use mflow_command::metrics::{open_metrics, to_prometheus, write_aside, Measured};
use mflow_command::module::{self, Unreachable};
use mflow_command::options::{Cli, Command, Set};
use mflow_command::output::{complain, print, print_json, print_line, warn, Unread};
use mflow_command::schema::{self, Applied, Changed, Failure, Metrics, Written};
use mflow_command::status::Status;
use mflow_command::top::view::View;
use mflow_command::top::{draw, screen, Watch};
use mflow_command::trace::known::Choice;
use mflow_command::{listing, pages, trace};

const FOUND: u8 = 1;
const FAILED: u8 = 2;
const NOT_LOADED: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::of_args(std::env::args_os());
    match run(&cli, Path::new("/")) {
        Ok(code) => ExitCode::from(code),
        Err(error) if error.is::<Unread>() => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!("{error:#}");
            if cli.json {
                let failure = Failure { error: text };
                complain(serde_json::to_string(&failure).unwrap_or_default());
            } else {
                complain(format_args!("mflow: {text}"));
            }
            ExitCode::from(if is_not_loaded(&error) {
                NOT_LOADED
            } else {
                FAILED
            })
        }
    }
}

fn is_not_loaded(error: &anyhow::Error) -> bool {
    let unreachable = match error.downcast_ref::<ChangeError>() {
        Some(ChangeError::Unreachable(error)) => Some(error),
        _ => error.downcast_ref::<Unreachable>(),
    };
    unreachable.is_some_and(Unreachable::is_not_loaded)
}

/// Returns the status to end with.
fn run(cli: &Cli, root: &Path) -> Result<u8> {
    match &cli.command {
        Command::Status => return status(cli, root),
        Command::Set(words) => set(cli, root, words)?,
        Command::Apply { file } => apply(cli, root, file)?,
        Command::Get { knob } => get(cli, root, knob.as_deref())?,
        Command::Confirm => {
            // Without the module that is what has to be said.
            module::open(root)?;
            confirm::confirm(root)?;
            if cli.json {
                print_json(&changed(Vec::new(), Vec::new(), None))?;
            } else {
                print_line("confirmed: the last change stays")?;
            }
        }
        Command::Flows => {
            let flows = module::open(root)?.flows()?;
            if cli.json {
                print_json(&flows)?;
            } else {
                print_line(listing::flows(&flows))?;
            }
        }
        Command::Top { interval, once } => return top(cli, root, *interval, *once),
        Command::Trace {
            flow,
            events,
            seconds,
        } => {
            let choice = Choice {
                kinds: events.clone(),
                flow: flow.clone(),
            };
            trace::run(root, &choice, *seconds, |event| match cli.json {
                true => print_json(event),
                false => print_line(event),
            })?;
        }
        Command::Metrics { file } => metrics(cli, root, file.as_deref())?,
        Command::Diagnose { seconds } => {
            let diagnosis = Diagnosis::of(&read::snapshot(root, *seconds)?);
            if cli.json {
                print_json(&diagnosis)?;
            } else {
                print_line(diagnosis.to_text())?;
            }
            return Ok(if diagnosis.healthy { 0 } else { FOUND });
        }
        Command::Schema => print(schema::schema()?)?,
        Command::Completion { shell } => print(pages::completion(*shell)?)?,
        Command::Man { folder } => pages::man(folder)?,
        Command::GoBack { name, after } => {
            confirm::go_back(root, name, after.map(Duration::from_secs))?;
        }
    }
    Ok(0)
}

fn status(cli: &Cli, root: &Path) -> Result<u8> {
    let status = Status::read(root);
    if cli.json {
        print_json(&status)?;
    } else {
        print_line(status.to_text())?;
    }
    Ok(if status.loaded { 0 } else { NOT_LOADED })
}

fn set(cli: &Cli, root: &Path, Set { words, confirm }: &Set) -> Result<()> {
    let wishes = Wish::of_words(words)?;
    let module = module::open(root)?;
    let lock = Lock::take(root)?;
    lock.require_nothing_unconfirmed(root)?;
    let steps = steps(&*module, &wishes)?;
    let remarks = confirm::apply(root, &*module, &lock, &steps, *confirm)?;
    let changed = changed(written(&steps), remarks, *confirm);
    if cli.json {
        return print_json(&changed);
    }
    changed.remarks.iter().for_each(|remark| warn(remark));
    match confirm {
        Some(seconds) => print_line(format_args!(
            "set; all is as before in {seconds} s, unless: mflow confirm"
        )),
        None => Ok(()),
    }
}

fn written(steps: &[Step]) -> Vec<Written> {
    let written = steps.iter().map(|step| Written {
        name: step.new.name().to_owned(),
        value: step.new.value(),
    });
    written.collect()
}

fn apply(cli: &Cli, root: &Path, file: &Path) -> Result<()> {
    let settings = Settings::read(file)?;
    let module = module::open(root)?;
    let lock = Lock::take(root)?;
    let applied = settings.apply(root, &*module, &lock);
    let applied = applied.with_context(|| file.display().to_string())?;
    let no_devices = module.devices()?.is_empty() && !settings.names_devices();
    if cli.json {
        return print_json(&Applied {
            settings: written(&applied.steps),
            remarks: applied.remarks,
            expected_devices: applied.expected,
        });
    }
    applied.remarks.iter().for_each(|remark| warn(remark));
    if no_devices {
        warn("no flow is split, as no device is opted in: a line `devices NIC` does that");
    }
    for step in written(&applied.steps) {
        print_line(format_args!("{} {}", step.name, step.value))?;
    }
    for name in &applied.expected {
        print_line(format_args!(
            "{name} is not here; its flows are split when it comes"
        ))?;
    }
    Ok(())
}

fn changed(settings: Vec<Written>, remarks: Vec<String>, confirm_within_s: Option<u64>) -> Changed {
    Changed {
        settings,
        remarks,
        confirm_within_s,
    }
}

fn get(cli: &Cli, root: &Path, knob: Option<&str>) -> Result<()> {
    let module = module::open(root)?;
    let values = listing::values(&*module, knob)?;
    match (knob, &values[..]) {
        (Some(name), []) => bail!("there is no knob {name}; there are {}", names()),
        _ if cli.json => print_json(&values),
        (Some(_), [one, ..]) => print_line(&one.value),
        (None, _) => print_line(listing::values_table(&values)),
    }
}

/// Shows the host on the terminal, or prints a look for each interval until nobody reads it.
fn top(cli: &Cli, root: &Path, interval: Duration, once: bool) -> Result<u8> {
    if !cli.json && !once {
        screen::show(root, interval)?;
        return Ok(0);
    }
    let mut watch = Watch::begin(root, interval)?;
    loop {
        thread::sleep(watch.left());
        watch.look()?;
        let sample = &watch.seen.sample;
        if cli.json {
            print_json(sample)?;
        } else {
            print_line(draw::text(sample, &View::default(), screen::width()))?;
        }
        if once {
            return Ok(if sample.status.loaded { 0 } else { NOT_LOADED });
        }
    }
}

fn metrics(cli: &Cli, root: &Path, file: Option<&Path>) -> Result<()> {
    let text = match module::open(root) {
        Ok(module) => {
            let flows = module.flows()?;
            let none_split = flows.none_split.as_ref();
            let status = Status::read(root);
            open_metrics(Some(&Measured {
                version: &module.version()?,
                kernel: &status.kernel,
                enabled: none_split.is_none_or(|why| why.reason != "not_enabled"),
                stats: &module.stats()?,
                flows: &flows,
            }))?
        }
        Err(error) if error.is_not_loaded() => open_metrics(None)?,
        Err(error) => return Err(error.into()),
    };
    if let Some(file) = file {
        write_aside(file, &to_prometheus(&text))?;
    }
    if cli.json {
        return print_json(&Metrics {
            text: file.is_none().then_some(text),
            file: file.map(|file| file.display().to_string()),
        });
    }
    match file {
        Some(_) => Ok(()),
        None => print(text),
    }
}
