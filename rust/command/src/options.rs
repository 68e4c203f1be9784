// SPDX-License-Identifier: GPL-2.0

//! The command line of `mflow`, of which help, completion and man pages are made.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::file;
use crate::trace::event::Kind;

/// The exit statuses, as the help has them.
const EXIT: &str = "\
Exit status:
  0  done; diagnose: nothing to do
  1  diagnose: something was found
  2  it could not be done, which one sentence on standard error says
  3  the module is not loaded (status, set, apply, get, flows, confirm, trace,
     top --once)";

const EXAMPLES: &str = "\
Examples:
  mflow status                              is it on, and what does it do
  mflow set cpus auto devices +eth0 enabled 1
  mflow set batch_pkts 64 --confirm 60      back in a minute, unless: mflow confirm
  mflow flows --json
  mflow top                                 cores, lanes and flows, each second
  mflow trace                               flows and batches, as things happen to them
  mflow metrics --file /var/lib/prometheus/node-exporter/mflow.prom
  mflow diagnose                            is one core the limit here; needs no module";

/// Shows what the module mflow does, sets its knobs, and says what limits a flow on this host
#[derive(Debug, Parser)]
#[command(
    name = "mflow",
    version,
    max_term_width = 100,
    subcommand_required = true,
    after_help = format!("{EXAMPLES}\n\n{EXIT}")
)]
pub struct Cli {
    /// Print JSON; `mflow schema` prints its schema
    #[arg(long, global = true)]
    pub json: bool,
    /// The command to run
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads a command line; ends the process with the help, or with what is wrong, if it is no command.
    pub fn of_args(args: impl IntoIterator<Item = OsString>) -> Self {
        Self::parse_from(options_first(args))
    }
}

/// Moves options of `set` in front of the knobs. Behind them they would be values: one of `devices` may begin with a hyphen, too.
fn options_first(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let Some(set) = args.iter().position(|arg| arg == "set") else {
        return args;
    };
    let (mut options, mut knobs) = (Vec::new(), Vec::new());
    let mut behind = args.drain(set + 1..);
    while let Some(arg) = behind.next() {
        let is_confirm = arg == "--confirm";
        if arg.as_encoded_bytes().starts_with(b"--") {
            options.push(arg);
            if is_confirm {
                options.extend(behind.next());
            }
        } else {
            knobs.push(arg);
        }
    }
    drop(behind);
    args.extend(options);
    args.extend(knobs);
    args
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show if the module is loaded and on, its lanes and devices, and what is late or dropped
    #[command(
        after_help = "Examples:\n  mflow status\n  mflow status --json | jq .enabled\n\nEnds with 3 if the module is not loaded."
    )]
    Status,
    /// Set knobs: all of those that are given, or none
    ///
    /// Values are as the module's files take them. Where several knobs have to be set one after the other, the command finds the order.
    /// If one value is refused, the knobs that were set before it are set back.
    #[command(
        after_help = "Examples:\n  mflow set enabled 0\n  mflow set layout lane+stage load_threshold_pct 0 cpus 2-5\n  mflow set devices +eth1        opts in one more device\n  mflow set devices eth0,eth1    opts in these, and no others\n  mflow set cpus ''              no lanes\n\nEnds with 2 if a value is refused, and says what is allowed."
    )]
    Set(Set),
    /// Set what a file says: all of it, or nothing
    ///
    /// A line of the file has a knob or `devices`, then white space or `=`, and the value. Comments begin with `#`. Knobs that it does not
    /// name stay as they are. If it names devices, no others are opted in; those that are not here are opted in when they come, if the
    /// package mflow-tools is installed.
    #[command(
        after_help = "Examples:\n  mflow apply                    as `systemctl reload mflow` does\n  mflow apply ./trial.conf\n\nA file:\n  # two NICs, of which one comes and goes\n  devices eth0,eth1\n  cpus = auto\n  enabled = 1\n\nEnds with 2 if a line or a value is refused, and says what is allowed."
    )]
    Apply {
        /// The file
        #[arg(default_value = file::USUAL)]
        file: PathBuf,
    },
    /// Show knobs, with the values that they can have
    #[command(
        after_help = "Examples:\n  mflow get            all, with what is allowed\n  mflow get cpus       the value alone"
    )]
    Get {
        /// The knob, or `devices` [default: all]
        knob: Option<String>,
    },
    /// Keep what `set --confirm` has set
    #[command(
        after_help = "Example:\n  mflow set enabled 1 --confirm 60 && sleep 30 && mflow confirm\n\nEnds with 2 if nothing waits for it."
    )]
    Confirm,
    /// Show the fast flows: what each gains from being split, or why it is whole
    #[command(
        after_help = "Examples:\n  mflow flows\n  mflow flows --json | jq '.flows[] | select(.state == \"whole\") | .why.reason'"
    )]
    Flows,
    /// Show cores, lanes and flows as they are, again and again
    ///
    /// Shares are parts of 100 of a core's time: those of softirqs and interrupts, and of all. A lane has the packets that it carried in
    /// the interval, and the memory of those that wait for it now. While the module is not loaded, it is waited for.
    ///
    /// Keys: `p`, `g`, `s`, `c` and `f` sort flows by packets per second, gain, state, CPU and sender, and `r` turns the order round.
    /// Arrows, and the keys for pages, move flows. Ctrl-L draws all again. `q` or Ctrl-C end. A lane is a CPU that carries packets of split
    /// flows, and a late packet was delivered after its turn.
    #[command(
        after_help = "Examples:\n  mflow top\n  mflow top --interval 0.5\n  mflow top --once                one look, as text\n  mflow top --json | jq .gain     a line for each interval, until it is ended\n\nEnds with 2 without a terminal, unless --once or --json is there. With --once it ends with 3 if the module is not loaded."
    )]
    Top {
        /// The time between two looks, 0.1 to 60 seconds
        #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
        interval: Duration,
        /// Print one look, and end
        #[arg(long)]
        once: bool,
    },
    /// Print what happens to flows and batches, as it happens
    ///
    /// A batch is a number of packets of a split flow that one CPU carries. Batches are merged in the order of their numbers; one that is
    /// not complete in time is given up, and its packets come late. Times are seconds since the host was started.
    ///
    /// The events are those of the kernel's tracefs, of which an instance is used that nobody else has. Where the kernel is locked down,
    /// flows that begin to be split and stop are told by netlink. The last line says how many events were lost.
    #[command(
        after_help = "Examples:\n  mflow trace\n  mflow trace --flow 192.168.50.1:50001 --events batch,merge,given_up,late\n  mflow trace --seconds 10 --json | jq 'select(.event == \"flow_stop\") | .reason'\n\nEnds with 3 if the module is not loaded, or goes meanwhile."
    )]
    Trace {
        /// Only flows of this device, or with an end that has this address, with a port behind it or without one
        #[arg(long, value_name = "DEVICE|ADDRESS[:PORT]")]
        flow: Option<String>,
        /// The events, with commas between them
        #[arg(
            long,
            value_name = "LIST",
            value_delimiter = ',',
            default_value = "flow_start,flow_stop,given_up,late"
        )]
        events: Vec<Kind>,
        /// Ends after this time, 0.1 to 86400 seconds [default: never]
        #[arg(long, value_name = "SECONDS", value_parser = traced)]
        seconds: Option<Duration>,
    },
    /// Print counters and states as metrics, in OpenMetrics text
    ///
    /// Without the module there is one metric: mflow_loaded 0.
    #[command(
        after_help = "Example, as root each minute:\n  mflow metrics --file /var/lib/prometheus/node-exporter/mflow.prom\n\nEnds with 0 without the module, too."
    )]
    Metrics {
        /// Write this file, for node_exporter's textfile collector, in the older text of Prometheus that it reads. It is written
        /// aside and renamed, so that nobody sees half of it
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
    },
    /// Look at this host for some seconds, and say what limits a flow here
    ///
    /// Run it while the traffic flows that is too slow. It changes nothing, and needs no module. The network namespace it runs in is
    /// that of the host; counters of sockets are those of all namespaces.
    #[command(
        after_help = "Examples:\n  mflow diagnose\n  mflow diagnose --seconds 30 --json\n\nEnds with 0 if there is nothing to do, and with 1 if there is."
    )]
    Diagnose {
        /// The time for which it looks at counters
        #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = look)]
        seconds: Duration,
    },
    /// Print the JSON schema of all that --json prints
    Schema,
    /// Print a script that completes command lines of mflow
    Completion {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages mflow.1, and one for each command
    Man {
        /// The folder that they are written to
        folder: PathBuf,
    },
    /// Set back what nobody confirms; started by `set --confirm`
    #[command(hide = true)]
    GoBack {
        /// The name of the change
        name: String,
        /// The seconds to wait before
        #[arg(long)]
        after: Option<u64>,
    },
}

/// Knobs and their values.
#[derive(Debug, Args)]
pub struct Set {
    /// Knobs or `devices`, each with its value behind it
    #[arg(required = true, num_args = 2.., value_name = "KNOB VALUE", allow_hyphen_values = true)]
    pub words: Vec<String>,
    /// Set all back after this time, 1 to 86400 seconds, unless `mflow confirm` comes before. Give it before or behind the knobs
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub confirm: Option<u64>,
}

fn look(text: &str) -> Result<Duration, String> {
    seconds(text, 0.5, 3600.0)
}

fn traced(text: &str) -> Result<Duration, String> {
    seconds(text, 0.1, 86_400.0)
}

fn interval(text: &str) -> Result<Duration, String> {
    seconds(text, 0.1, 60.0)
}

fn seconds(text: &str, least: f64, most: f64) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (least..=most).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("{least} to {most} are allowed"))?;
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn set(line: &str) -> (Vec<String>, Option<u64>, bool) {
        let args = line.split(' ').map(OsString::from);
        let cli = Cli::try_parse_from(options_first(args)).expect(line);
        match cli.command {
            Command::Set(Set { words, confirm }) => (words, confirm, cli.json),
            other => panic!("{line} is {other:?}"),
        }
    }

    #[test]
    fn command_lines_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_stand_before_and_behind_knobs_and_devices_may_begin_with_a_hyphen() {
        let words = ["devices", "-eth0", "cpus", "2-3"]
            .map(str::to_owned)
            .to_vec();
        for line in [
            "mflow set --confirm 60 --json devices -eth0 cpus 2-3",
            "mflow --json set devices -eth0 cpus 2-3 --confirm 60",
            "mflow set devices -eth0 cpus 2-3 --confirm 60 --json",
            "mflow set devices -eth0 --json --confirm=60 cpus 2-3",
        ] {
            assert_eq!(set(line), (words.clone(), Some(60), true), "{line}");
        }
        Cli::try_parse_from(["mflow", "set", "--confirm", "0", "enabled", "1"]).expect_err("0");
        Cli::try_parse_from(["mflow", "set"]).expect_err("no knob");
    }

    #[test]
    fn a_look_takes_some_time_and_not_too_long() {
        for (seconds, is_allowed) in [("0.1", true), ("60", true), ("0.05", false), ("61", false)] {
            let cli = Cli::try_parse_from(["mflow", "top", "--interval", seconds]);
            assert_eq!(cli.is_ok(), is_allowed, "{seconds}");
        }
        let error = Cli::try_parse_from(["mflow", "top", "--interval", "NaN"]).expect_err("none");
        assert!(error.to_string().contains("0.1 to 60 are allowed"));
    }

    #[test]
    fn events_are_a_list_of_names() {
        let events = |line: &str| {
            let cli = Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
            match cli.command {
                Command::Trace { events, .. } => Ok(events),
                other => Err(format!("{other:?}")),
            }
        };
        let usual = [Kind::FlowStart, Kind::FlowStop, Kind::GivenUp, Kind::Late];
        assert_eq!(events("mflow trace").as_deref(), Ok(&usual[..]));
        let two = events("mflow trace --events batch,merge");
        assert_eq!(two.as_deref(), Ok(&[Kind::Batch, Kind::Merge][..]));
        let error = events("mflow trace --events merges").expect_err("it is none");
        assert!(error.contains("flow_start, flow_stop, batch"), "{error}");
        let error = events("mflow trace --seconds 0").expect_err("it is too short");
        assert!(error.contains("0.1 to 86400 are allowed"), "{error}");
    }

    #[test]
    fn the_help_names_every_exit_status() {
        let help = Cli::command().render_long_help().to_string();
        for status in ["  0  done", "  1  diagnose", "  2  it", "  3  the module"] {
            assert!(help.contains(status), "{status}");
        }
        assert!(!help.contains("go-back"));
    }
}
