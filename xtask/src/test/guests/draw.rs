// SPDX-License-Identifier: GPL-2.0

//! The choice of cases for each guest.
//!
//! Each case runs where it can fail differently. Of the cases that differ only in parameters (their own, UDP or TCP, the guest's
//! NIC and channels), the default run draws enough for every two values of two parameters to meet in one of them. Of all others
//! it draws a part of each group ([`OF_GROUP`]); groups that are too small for that are drawn from together. One of the four kinds
//! of ConnectX is drawn. On the checking kernel, which is slow, one case of a part of the groups runs ([`OF_CHECKED`]), and
//! always one about joined frames ([`JOINS`]). The draw depends on a seed, which is the commit: other cases run with other commits, and
//! a run can be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::cpus::{ISOLATED, NEEDED_WITH_ISOLATED, UNDISTURBED};
use mflow_protocol::guest::{ListedCase, NO_DEBUGFS};

use crate::kernel::source::short_hash;
use crate::kernel::{Flavor, Way};
use crate::setup::qemu;
use crate::test::{stock, Ctx};
use crate::tools;
use crate::vm::{self, Hardware, Nic};

#[derive(Clone, Copy, Debug)]
pub(in crate::test) struct GuestKind {
    pub(in crate::test) name: &'static str,
    pub(in crate::test) flavor: Flavor,
    pub(in crate::test) nic: Nic,
    /// The number of channels of the NICs, if not the one that they come with.
    pub(in crate::test) channels: Option<u16>,
    /// The way the module comes into the kernel's stack.
    pub(in crate::test) way: Way,
    /// False if its kernel has no debugfs.
    pub(in crate::test) debugfs: bool,
}

/// The guests of the layers `vm`, `vm-debug` and `mlx5`.
pub(in crate::test) const GUESTS: [GuestKind; 10] = [
    guest("vm", Flavor::Vm, Nic::Virtio, None),
    guest("vm-debug", Flavor::Debug, Nic::Virtio, None),
    guest("mlx5-1", Flavor::Vm, Nic::Mlx5, Some(1)),
    guest("mlx5-4", Flavor::Vm, Nic::Mlx5, Some(4)),
    guest("mlx5-striding-1", Flavor::Vm, Nic::Mlx5Striding, Some(1)),
    guest("mlx5-striding-4", Flavor::Vm, Nic::Mlx5Striding, Some(4)),
    guest("vm-small", Flavor::Vm, Nic::VirtioSmall, None),
    GuestKind {
        debugfs: false,
        ..guest("vm-no-debugfs", Flavor::Vm, Nic::Virtio, None)
    },
    GuestKind {
        way: Way::Stock,
        ..guest("vm-debug-stock", Flavor::Debug, Nic::Virtio, None)
    },
    GuestKind {
        way: Way::Stock,
        ..guest("mlx5-stock", Flavor::Vm, Nic::Mlx5, None)
    },
];

pub(in crate::test) const fn guest(
    name: &'static str,
    flavor: Flavor,
    nic: Nic,
    channels: Option<u16>,
) -> GuestKind {
    GuestKind {
        name,
        flavor,
        nic,
        channels,
        way: Way::Patched,
        debugfs: true,
    }
}

/// The cases about the order of a flow, in its plainest form, and about the channels of a ConnectX: they run in every guest that
/// has them.
const CORE: &str =
    "main lanes/4 batch/1 flows/3/one-socket tcp/main connectx/channels connectx/probe";

/// The cases of which no kernel but the checking one would notice a failure, by whichever way they hold there.
const CHECKED: &str = "hooks/verdict tcp/hooks/clones";

/// The case that runs once each time, in the plain guest: it has many runs of frames, which the seed draws.
pub(in crate::test) const COMPARED: &str = "join/gro";

/// The group of which the checking kernel runs a case each time, by either way. A page that a lane has hung onto a packet has several
/// owners, and only that kernel sees one of them use it too late.
const JOINS: &str = "join";
/// The case of that group that shows nothing there: before a stream's next segment comes, the others have had their turn.
const TAKES_TURNS: &str = "join/flows";

/// The cases about what a ConnectX does to packets under the distribution's own driver: all that this guest has.
const STOCK_CARD: &str = "main tcp/main sums/own sums/routed";

/// Cases of one idea each, with or without `tcp/` in front, whose names go on with the values of its parameters.
const PARAMETRIC: &str = "batch capture family flows lanes scaling size";

/// The guests with a ConnectX, of which one is drawn.
const CARDS: [&str; 4] = ["mlx5-1", "mlx5-4", "mlx5-striding-1", "mlx5-striding-4"];

/// The cases that show the same with any card, with or without `tcp/` in front.
const ANY_CARD: &str = "control/ command/ knobs/ netlink/ trace/ capture/host-vxlan0 capture/host-br0 capture/host-veth0 capture/container devices/ \
                        teardown/vxlan teardown/bridge teardown/veth teardown/container teardown/socket reader/ readers/ \
                        ifb/ reasons/ request/ programs/ half-close/ reset close disconnect listener handshake/ paths/ broadcast/ multicast/ \
                         timestamps receive-buffer routes/ sockmap by-cpu takeover refragmented mode/cpus mode/stages \
                         mode/geneve mode/gre mode/ipip mode/full mode/refusals mode/teardown mode/load/busy-cpu mode/load/all-busy mode/native \
                         tunnel/ auto/ load/ virtual-nic/ join/gro join/max-size join/unread";

/// A card has summed packets (`CHECKSUM_COMPLETE`), so GRO verifies nothing of them, and the kernel itself loses what rules write into
/// here: nothing arrives with the vanilla stack. Such packets all go past GRO, whatever they begin with.
const SUMMED_BY_CARDS: &str = "gro/header/ gro/checksum/ gro/disguised/";

/// The cases that differ where each receive buffer holds one frame of 1500 bytes, with or without `tcp/` in front: they are about
/// which core builds packets, and how.
const SMALL_BUFFERS: &str = "build/ size/";

/// The cases that need CPUs which nobody is to use unasked. The guest with small buffers has some such CPUs besides the others:
/// it has few cases.
const ISOLATED_CPUS: &str = "auto/isolated";

/// All cases of the guest without debugfs, which need that. It is worth a boot only in some runs: so few are drawn.
const WITHOUT_DEBUGFS: &str = "debugfs/";

/// The cases of each kind of guest, by its name.
pub(in crate::test) type Cases = BTreeMap<&'static str, BTreeSet<String>>;

impl GuestKind {
    /// Returns the machine that it is.
    pub(in crate::test) fn hardware(self) -> Hardware {
        let hardware = Hardware {
            nic: self.nic,
            ..Hardware::default()
        };
        if !self.debugfs {
            return Hardware {
                append: Some(NO_DEBUGFS.to_owned()),
                ..hardware
            };
        }
        if self.nic != Nic::VirtioSmall {
            return hardware;
        }
        Hardware {
            // CAST: a handful.
            cpus: NEEDED_WITH_ISOLATED as u16,
            append: Some(format!("isolcpus={ISOLATED} nohz_full={UNDISTURBED}")),
            ..hardware
        }
    }

    /// Returns the options of `mflow-guest cases` that list, and scale, the cases for this guest.
    pub(in crate::test) fn options(self, full: bool) -> Vec<&'static str> {
        match (self.flavor, self.nic.is_connectx(), full) {
            (Flavor::Debug, ..) => vec!["--short"],
            (_, true, true) => vec!["--full", "--connectx"],
            (_, true, false) => vec!["--brief", "--connectx"],
            (_, false, true) => vec!["--full"],
            (_, false, false) => Vec::new(),
        }
    }

    /// Tells whether a case says something in this guest.
    ///
    /// The time for which the module waits for a CPU that is held has nothing to do with a card. A client whose card has several
    /// queues sends its first answer and the data behind it by two of them, and so in either order.
    fn suits(self, case: &ListedCase, is_default: bool) -> bool {
        let idea = without_transport(&case.name).0;
        let is_one_of = |groups: &str| {
            groups
                .split_whitespace()
                .any(|group| idea.starts_with(group))
        };
        if self.nic != Nic::VirtioSmall && is_one_of(ISOLATED_CPUS) {
            return false;
        }
        if self.debugfs == is_one_of(WITHOUT_DEBUGFS) {
            return false;
        }
        let holds = match self.way {
            Way::Patched => !stock::is_own(&case.name),
            // The checking kernel is ours on either way.
            Way::Stock if self.flavor == Flavor::Debug => stock::holds_on_ours(&case.name),
            Way::Stock => stock::holds(&case.name),
        };
        if !holds || stock::locks_down(&case.name) {
            return false;
        }
        match self.nic {
            _ if self.is_stock_card() => has_word(STOCK_CARD, &case.name),
            Nic::Virtio => true,
            Nic::VirtioSmall => {
                has_word(CORE, &case.name) || is_one_of(SMALL_BUFFERS) || is_one_of(ISOLATED_CPUS)
            }
            Nic::Mlx5 | Nic::Mlx5Striding => {
                !(has_word("deadline/lane-held fast-open", idea)
                    || is_one_of(SUMMED_BY_CARDS)
                    || is_default && is_one_of(ANY_CARD))
            }
        }
    }

    fn suitable(
        self,
        cases: impl IntoIterator<Item = ListedCase>,
        is_default: bool,
    ) -> impl Iterator<Item = (Self, String)> {
        let suitable = cases
            .into_iter()
            .filter(move |case| self.suits(case, is_default));
        suitable.map(move |case| (self, case.name))
    }

    /// Tells whether it is the one with a card and without hooks.
    fn is_stock_card(self) -> bool {
        self.nic.is_connectx() && self.way == Way::Stock
    }

    /// Tells whether each run has this case here.
    fn always_has(self, case: &str) -> bool {
        self.debugfs && has_word(CORE, case)
            || self.name == "vm" && has_word(COMPARED, case)
            || self.is_stock_card()
            || self.flavor == Flavor::Debug && has_word(CHECKED, case)
    }

    /// Tells whether each run has this case here, or another one of its group ([`JOINS`]). The frames of [`COMPARED`] come by no NIC.
    fn has_one_like(self, case: &str) -> bool {
        self.flavor == Flavor::Debug
            && group_of(case) == JOINS
            && !has_word(COMPARED, case)
            && case != TAKES_TURNS
    }

    /// Returns the things that a case shows in this guest, each of which some run has to show.
    fn shows(self, case: &str) -> Vec<String> {
        let (idea, transport) = without_transport(case);
        let mut parts = idea.split('/');
        let group = parts.next().unwrap_or_default();
        let on_card = self.nic.is_connectx();
        let mut values = Vec::new();
        let mut shows = Vec::new();
        let is_checked = self.flavor == Flavor::Debug;
        if self.always_has(case) {
            shows.push(format!("{case} in {}", self.name));
        }
        if self.has_one_like(case) {
            shows.push(format!("{group} in {}", self.name));
        }
        if has_word(PARAMETRIC, group) && !is_checked {
            values.push(transport.to_owned());
            let parts = parts.flat_map(|part| part.split("-in-")).enumerate();
            values.extend(parts.map(|(place, value)| format!("{group}.{place}={value}")));
            let way = match self.way {
                Way::Patched => "",
                Way::Stock => " without hooks",
            };
            values.push(format!("{:?} {}{way}", self.flavor, self.nic.name()));
        } else if on_card {
            shows.push(format!("{case} on a card"));
            // Each case about the card itself, and each idea of the others, meets the kind of queues and the number of channels.
            let one = if group == "connectx" { case } else { group };
            values.extend([one.to_owned(), self.nic.name().to_owned()]);
        } else if is_checked {
            // Which case of a group is checked for memory and locks, and on which way, is drawn.
            shows.push(format!("{group} checked"));
        } else {
            shows.push(format!("{case} in {}", self.name));
        }
        values.extend(self.channels.map(|count| format!("{count} channels")));
        for (place, one) in values.iter().enumerate() {
            let others = values[place + 1..].iter();
            shows.extend(others.map(|other| format!("{one}, {other}")));
        }
        shows
    }
}

pub(in crate::test) fn has_word(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|one| one == word)
}

/// Returns the name without the transport, and the transport.
fn without_transport(case: &str) -> (&str, &'static str) {
    case.strip_prefix("tcp/")
        .map_or((case, "udp"), |idea| (idea, "tcp"))
}

/// Returns the cases that the guest program, which runs on the host too, lists.
pub(in crate::test) fn listed(
    program: &str,
    options: &[impl AsRef<OsStr>],
) -> Result<Vec<ListedCase>> {
    let mut command = tools::command(&vm::guest_program()?.to_string_lossy());
    let text = tools::output(command.args([program, "--list"]).args(options))?;
    let cases = serde_json::Deserializer::from_str(&text).into_iter();
    let cases: Vec<ListedCase> = cases
        .collect::<Result<_, _>>()
        .context("the guest program lists what is no test case")?;
    ensure!(!cases.is_empty(), "the guest program lists no case");
    Ok(cases)
}

/// Returns the options of the guest program for a guest.
pub(in crate::test) fn options(ctx: &Ctx, guest: &GuestKind) -> Vec<String> {
    let mode = ctx.mode.iter().map(|mode| format!("--mode={mode}"));
    let options = guest.options(ctx.full).into_iter().map(str::to_owned);
    options.chain(mode).collect()
}

/// Returns the cases of all guests; with `--full` or chosen by name, none is left to the draw.
pub(in crate::test) fn cases(ctx: &Ctx) -> Result<Cases> {
    let mut candidates = Vec::new();
    // Without cards, all cases are drawn for the other guests.
    let cards = qemu::suits(&qemu::VFIO_USER);
    let has_card = |guest: &GuestKind| {
        !ctx.is_default() || guest.is_stock_card() || drawn_card(&ctx.seed) == guest.name
    };
    let guests = GUESTS
        .into_iter()
        .filter(|guest| !guest.nic.is_connectx() || (cards && has_card(guest)))
        // One kind of guest is enough for a kernel where all are to go the same way.
        .filter(|guest| ctx.way.is_none() || guest.way == Way::default());
    for guest in guests {
        let way = ctx.way.unwrap_or(guest.way);
        let guest = GuestKind { way, ..guest };
        let cases = listed("cases", &options(ctx, &guest))?;
        candidates.extend(guest.suitable(cases, ctx.is_default()));
    }
    let all = candidates.len();
    if ctx.is_default() {
        candidates = drawn(thinned(candidates, &ctx.seed), &ctx.seed);
        println!(
            "{} of {all} cases in guests are drawn by {seed}; again: cargo xtask test --seed {seed}",
            candidates.len(),
            seed = ctx.seed
        );
    }
    let mut cases = Cases::new();
    for (guest, case) in candidates {
        cases.entry(guest.name).or_default().insert(case);
    }
    Ok(cases)
}

/// Returns the guest with a ConnectX of this seed.
fn drawn_card(seed: &str) -> &'static str {
    one_of(seed, &CARDS)
}

/// Draws between two ways to run a case.
pub(in crate::test) fn is_odd(seed: &str, case: &str) -> bool {
    number(&format!("{seed} {case}")) % 2 == 1
}

/// Draws one of these.
pub(in crate::test) fn one_of<T: Copy>(seed: &str, all: &[T]) -> T {
    all[number(seed) % all.len()]
}

fn number(seed: &str) -> usize {
    short_hash(seed.as_bytes()).bytes().map(usize::from).sum()
}

/// Returns the group of a case: what it is about, with or without `tcp/` in front.
pub(in crate::test) fn group_of(case: &str) -> &str {
    let idea = without_transport(case).0;
    idea.split('/').next().unwrap_or_default()
}

/// Returns the names of the cases that a part of the guest program lists, of those that are shown. The default run has a part of each
/// group.
pub(in crate::test) fn names(
    ctx: &Ctx,
    program: &str,
    options: &[impl AsRef<OsStr>],
    is_shown: impl Fn(&str) -> bool,
) -> Result<BTreeSet<String>> {
    let cases = listed(program, options)?.into_iter();
    let names = cases.map(|case| case.name).filter(|name| is_shown(name));
    let names = names.collect();
    Ok(if ctx.is_default() {
        part_of_groups(&ctx.seed, names)
    } else {
        names
    })
}

/// Returns a part of the cases of each group; all of the core.
fn part_of_groups(seed: &str, cases: BTreeSet<String>) -> BTreeSet<String> {
    let is_core = |case: &String| has_word(CORE, case);
    let (core, others): (BTreeSet<_>, BTreeSet<_>) = cases.into_iter().partition(is_core);
    let part = part_of_each(seed, others, OF_GROUP, |case| group_of(case).to_owned());
    core.into_iter().chain(part).collect()
}

/// The part of each group of cases that the default run draws; tidy holds the documents that name it against this.
pub(in crate::test) const OF_GROUP: Part = Part::Eighth;
/// The part of the groups of which the default run draws a case for the checking kernel; likewise.
pub(in crate::test) const OF_CHECKED: Part = Part::Eighth;

/// A part of a group of names, rounded up.
#[derive(Clone, Copy, Debug)]
pub(in crate::test) enum Part {
    One,
    Quarter,
    Eighth,
}

impl Part {
    /// Returns of how many names one is drawn; nothing: of any number.
    fn one_in(self) -> Option<usize> {
        match self {
            Self::One => None,
            Self::Quarter => Some(4),
            Self::Eighth => Some(8),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "one",
            Self::Quarter => "a quarter",
            Self::Eighth => "an eighth",
        })
    }
}

/// Returns a part of each set of names that are in the same group. Names of groups that are too small for that are in one set.
pub(in crate::test) fn part_of_each(
    seed: &str,
    names: BTreeSet<String>,
    part: Part,
    group: impl Fn(&str) -> String,
) -> BTreeSet<String> {
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for name in names {
        groups.entry(group(&name)).or_default().push(name);
    }
    let is_large = |names: &Vec<String>| part.one_in().is_none_or(|all| names.len() >= all);
    let (large, small): (Vec<_>, Vec<_>) = groups.into_values().partition(is_large);
    let sets = large.into_iter().chain([small.concat()]);
    let drawn = sets.flat_map(|mut names| {
        names.sort_by_cached_key(|name| short_hash(format!("{seed} {name}").as_bytes()));
        names.truncate(part.one_in().map_or(1, |all| names.len().div_ceil(all)));
        names
    });
    drawn.collect()
}

/// Returns the candidates with a part of each group whose cases do not differ in parameters alone, and with a part of the groups on
/// the checking kernel, where one case is about joined frames.
fn thinned(mut candidates: Vec<(GuestKind, String)>, seed: &str) -> Vec<(GuestKind, String)> {
    let names = candidates.iter().map(|(_, case)| case);
    let names = names.filter(|case| !has_word(PARAMETRIC, group_of(case)));
    let kept = part_of_groups(seed, names.cloned().collect());
    let groups = candidates.iter().map(|(_, case)| group_of(case).to_owned());
    let checked = part_of_each(seed, groups.collect(), OF_CHECKED, |_| String::new());
    let joins = candidates.iter();
    let joins: Vec<_> = joins
        .filter(|(guest, case)| guest.has_one_like(case))
        .map(|(_, case)| case)
        .collect();
    let join = (!joins.is_empty()).then(|| one_of(seed, &joins).clone());
    candidates.retain(|(guest, case)| {
        let is_join = guest.has_one_like(case) && join.as_ref() == Some(case);
        let is_checked = guest.flavor != Flavor::Debug || checked.contains(group_of(case));
        let is_kept = has_word(PARAMETRIC, group_of(case)) || kept.contains(case);
        guest.always_has(case) || is_join || (is_checked && is_kept)
    });
    candidates
}

/// Returns so many of the candidates that they show all that all of them show: each time one that adds most.
fn drawn(mut candidates: Vec<(GuestKind, String)>, seed: &str) -> Vec<(GuestKind, String)> {
    // Of those that add as much, which comes first is a matter of the seed.
    candidates.sort_by_cached_key(|(guest, case)| {
        short_hash(format!("{seed} {} {case}", guest.name).as_bytes())
    });
    let mut missing = BTreeMap::new();
    let mut shows = Vec::new();
    for (guest, case) in &candidates {
        let mut numbers = Vec::new();
        for what in guest.shows(case) {
            let next = missing.len();
            numbers.push(*missing.entry(what).or_insert(next));
        }
        shows.push(numbers);
    }
    let mut missing = vec![true; missing.len()];
    let mut drawn = Vec::new();
    loop {
        let added = |numbers: &Vec<usize>| numbers.iter().filter(|&&what| missing[what]).count();
        // The first of the best: `max_by_key` would return the last.
        let all = shows.iter().enumerate().rev();
        let best = all.max_by_key(|(_, numbers)| added(numbers));
        let Some((place, numbers)) = best.filter(|(_, numbers)| added(numbers) > 0) else {
            return drawn;
        };
        for &what in numbers {
            missing[what] = false;
        }
        drawn.push(candidates[place].clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "main tail/lanes-2 hotplug/lane batch/1 batch/16 batch/256 tcp/batch/16 tcp/batch/256 \
                         family/4-in-4/16 family/6-in-4/16 family/4-in-6/16 family/6-in-6/16 family/4-in-4/4000 \
                         family/6-in-6/4000 tcp/family/6-in-4 tcp/reset connectx/link connectx/death tcp/flows/churn/v4 \
                         auto/isolated auto/follows debugfs/off hooks/enabled hooks/full hooks/verdict tcp/hooks/clones \
                         sums/own sums/routed join/gro join/stream join/frames/v6";

    fn candidates(seed: &str) -> Vec<(GuestKind, String)> {
        let mut candidates = Vec::new();
        let card = drawn_card(seed);
        let runs = |guest: &GuestKind| {
            !guest.nic.is_connectx() || guest.is_stock_card() || card == guest.name
        };
        for guest in GUESTS.into_iter().filter(runs) {
            let cases = NAMES.split_whitespace().map(|name| ListedCase {
                name: name.to_owned(),
                patches_code: name == "tcp/flows/churn/v4",
                proves: String::new(),
                steps: Vec::new(),
            });
            candidates.extend(guest.suitable(cases, true));
        }
        candidates
    }

    fn names(seed: &str) -> BTreeSet<String> {
        let drawn = drawn(candidates(seed), seed).into_iter();
        drawn
            .map(|(guest, case)| format!("{} {case}", guest.name))
            .collect()
    }

    #[test]
    fn each_seed_draws_all_pairs_and_all_cases_in_its_own_way() {
        for seed in ["one", "other"] {
            let shown = |cases: Vec<(GuestKind, String)>| -> BTreeSet<String> {
                let shows = cases.iter().map(|(guest, case)| guest.shows(case));
                shows.flatten().collect()
            };
            let drawn = drawn(candidates(seed), seed);
            assert!(drawn.len() < candidates(seed).len() * 4 / 5);
            let shown_by_draw = shown(drawn);
            assert_eq!(shown_by_draw, shown(candidates(seed)));
            let card = GUESTS.iter().find(|guest| guest.name == drawn_card(seed));
            let card = card.expect("each card has a guest");
            let (queues, channels) = (card.nic.name(), card.channels.expect("a number"));
            for pair in [
                &format!("batch.0=16, Vm {queues}"),
                &format!("batch.0=256, {channels} channels"),
                &format!("connectx/link, {channels} channels"),
                &format!("tail, {queues}"),
                "family.0=6, family.1=4",
                "udp, batch.0=16",
                "tail checked",
                "batch checked",
                "main in vm-debug",
                "main in vm-debug-stock",
                "join in vm-debug",
                "join/gro in vm",
                "sums/own in mlx5-stock",
            ] {
                assert!(shown_by_draw.contains(pair), "{pair}");
            }
            let names = names(seed);
            assert!(!names
                .iter()
                .any(|name| name.contains("mlx5") && name.contains("reset")));
            let isolated = names.iter().filter(|name| name.ends_with("isolated"));
            assert_eq!(isolated.collect::<Vec<_>>(), ["vm-small auto/isolated"]);
            let without = names.iter().filter(|name| name.contains("debugfs"));
            assert_eq!(without.collect::<Vec<_>>(), ["vm-no-debugfs debugfs/off"]);
            assert_eq!(names, self::names(seed));
        }
        assert_ne!(names("one"), names("other"));
    }

    #[test]
    fn nothing_of_the_core_is_left_out_and_all_others_are_drawn_at_times() {
        let mut runs = BTreeSet::new();
        for seed in 0..128 {
            let kept = thinned(candidates("one"), &seed.to_string());
            let has = |name: &str| kept.iter().any(|(_, case)| case == name);
            for name in ["main", "batch/1", "family/4-in-4/16"] {
                assert!(has(name), "{name}");
            }
            let plain = kept
                .iter()
                .filter(|(guest, _)| guest.flavor != Flavor::Debug);
            let checked = kept
                .iter()
                .filter(|(guest, _)| guest.flavor == Flavor::Debug);
            let is_drawn =
                |case: &&String| !has_word(PARAMETRIC, group_of(case)) && !has_word(CORE, case);
            let anywhere = plain.clone().filter(|(guest, _)| !guest.is_stock_card());
            let drawn: BTreeSet<_> = anywhere.map(|(_, case)| case).filter(is_drawn).collect();
            assert!(
                (1..=5).contains(&drawn.len()),
                "an eighth of 17, and the one that runs each time: {drawn:?}"
            );
            for name in CHECKED.split_whitespace() {
                assert!(checked.clone().any(|(_, case)| case == name), "{name}");
            }
            assert!(checked.count() < plain.count());
            runs.extend(kept.into_iter().map(|(_, case)| case));
        }
        let all: BTreeSet<String> = NAMES.split_whitespace().map(str::to_owned).collect();
        assert_eq!(runs, all);
    }

    #[test]
    fn the_checking_kernel_joins_frames_each_time() {
        let mut runs = BTreeSet::new();
        for seed in 0..16 {
            let seed = seed.to_string();
            let drawn = drawn(thinned(candidates(&seed), &seed), &seed).into_iter();
            let checked = drawn.filter(|(guest, _)| guest.name == "vm-debug");
            let joins: Vec<_> = checked
                .map(|(_, case)| case)
                .filter(|case| ["join/stream", "join/frames/v6"].contains(&case.as_str()))
                .collect();
            assert!(!joins.is_empty(), "seed {seed}");
            runs.extend(joins);
        }
        assert_eq!(runs.len(), 2, "{runs:?}");
    }

    #[test]
    fn each_way_to_run_a_case_is_drawn_at_times() {
        let drawn: BTreeSet<_> = (0..9)
            .map(|seed| is_odd(&seed.to_string(), "case"))
            .collect();
        assert_eq!(drawn.len(), 2);
    }

    #[test]
    fn each_kind_of_card_is_drawn_at_times() {
        let drawn: BTreeSet<_> = (0..32).map(|seed| drawn_card(&seed.to_string())).collect();
        assert_eq!(drawn, BTreeSet::from(CARDS));
    }
}
