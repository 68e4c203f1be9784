// SPDX-License-Identifier: GPL-2.0

//! Checks that the entries of a configuration fit together: names lead to something, chains have the path or behaviour that they
//! need, and there are no more of anything than there can be.

use std::collections::BTreeMap;
use std::fmt::Display;

use anyhow::{anyhow, bail, ensure, Context as _};
use mflow_hike::limits::{
    BEHAVIOURS, CHAINS, CLASSES, FLOWS, GROUPED, PATHS, PORTS, ROUTES, RULES,
};
use mflow_hike::{Behaviour, Chain, Destination, DeviceName, Flow, Hook, XdpMode};

use super::objects::Kind;
use super::{kernel, Configuration, Counted, Fast, Origin, Problem, Way};

type Result<T> = std::result::Result<T, Problem>;

/// A chain of its own takes what is to take the kernel's path.
pub(crate) const OWN_CHAINS: usize = 1;

/// Each change asks the kernel for all of its routes that are ours.
const KERNEL_ROUTES: usize = 16_384;

/// Each has a socket and, at the shortest interval, a hundred packets in a second.
const SESSIONS: usize = 256;

const MOST_NAME_BYTES: usize = 63;

/// The programs that need the access list, and the hint of a class.
const ACL: &str = "acl";
const LANES: &str = "lanes";

fn has(chain: &Chain, program: &str) -> bool {
    chain.programs().iter().any(|one| one.name == program)
}

impl Configuration {
    /// Returns it if all of its parts fit together, or the first thing that does not.
    pub fn checked(self) -> Result<Self> {
        let checked = self.checked_as_applied()?;
        checked.check_colours()?;
        Ok(checked)
    }

    /// Returns one that was applied, perhaps by an earlier version: that may have let through what is refused now, and does no harm.
    pub(crate) fn checked_as_applied(mut self) -> Result<Self> {
        // The kernel tells of a metric whether it was written or left out.
        for route in self.kernel_routes.values_mut() {
            route.metric = route.key().unusual_metric();
        }
        self.check_sizes()?;
        self.check_mode()?;
        self.check_names()?;
        self.check_each()?;
        self.check_chains()?;
        self.check_classes()?;
        self.check_flows()?;
        self.check_routes()?;
        self.check_monitors()?;
        kernel::check(&self.kernel_routes)?;
        Ok(self)
    }

    fn check_sizes(&self) -> Result<()> {
        let is_exact = |destination: &&Destination| matches!(destination, Destination::Address(_));
        let exact = self.classes.keys().filter(is_exact).count();
        let prefixes = self.classes.len() - exact;
        let has_behaviour = |way: &&Way| matches!(way, Way::Fast(fast) if fast.behaviour.is_some());
        let sids = self.classes.values().filter(has_behaviour).count();
        let kernel_routes = self.kernel_routes.len();
        for (kind, which, count, most) in [
            (Kind::Rule, "", self.rules.len(), RULES),
            (Kind::Chain, "", self.chains.len(), CHAINS - OWN_CHAINS),
            (Kind::Path, "", self.paths.len(), PATHS),
            // The first place stands for none.
            (Kind::Behaviour, "", self.behaviours.len(), BEHAVIOURS - 1),
            (Kind::Class, "addresses as ", exact, CLASSES),
            (Kind::Class, "prefixes as ", prefixes, CLASSES),
            // Each has a behaviour of its own in the tables.
            (Kind::Class, "local SIDs as ", sids, BEHAVIOURS - 1),
            (Kind::Flow, "", self.flows.len(), CLASSES),
            (Kind::Route, "", self.routes.len(), ROUTES),
            (Kind::Inside, "devices as ", self.inside.len(), GROUPED),
            (Kind::Port, "", self.ports.len(), PORTS),
            (Kind::Session, "", self.sessions.len(), SESSIONS),
            (Kind::KernelRoute, "", kernel_routes, KERNEL_ROUTES),
        ] {
            if count > most {
                let what = kind.section();
                let text = format!("there are {count} {which}{what}: {most} are allowed");
                return Err(Problem::new(kind, "", text));
            }
        }
        Ok(())
    }

    fn check_mode(&self) -> Result<()> {
        if self.hook == Hook::Xdp || self.mode == XdpMode::default() {
            return Ok(());
        }
        let text = format!(
            "a mode is one of {}, and this instance is at {}; leave it out",
            Hook::Xdp,
            self.hook
        );
        Err(Problem::new(Kind::Mode, "", text))
    }

    fn check_names(&self) -> Result<()> {
        for (kind, names) in [(Kind::Device, &self.devices), (Kind::Port, &self.ports)] {
            for name in names {
                of(kind, name, device_name(name))?;
            }
        }
        for name in &self.inside {
            of(Kind::Inside, name, self.check_inside(name))?;
        }
        for (name, route) in &self.kernel_routes {
            let device = device_name(&route.device).map_err(|error| anyhow!("device: {error}"));
            of(Kind::KernelRoute, name, device)?;
        }
        let kind = |kind| move |name| (kind, name);
        let names = self.chains.keys().map(kind(Kind::Chain));
        let names = names.chain(self.paths.keys().map(kind(Kind::Path)));
        let names = names.chain(self.behaviours.keys().map(kind(Kind::Behaviour)));
        let names = names.chain(self.flows.keys().map(kind(Kind::Flow)));
        let names = names.chain(self.monitors.keys().map(kind(Kind::Monitor)));
        let names = names.chain(self.sessions.keys().map(kind(Kind::Session)));
        let mut names = names.chain(self.kernel_routes.keys().map(kind(Kind::KernelRoute)));
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_name =
            |name: &String| (1..=MOST_NAME_BYTES).contains(&name.len()) && name.chars().all(good);
        match names.find(|(_, name)| !is_name(name)) {
            None => Ok(()),
            Some((kind, name)) => {
                let text = format!(
                    "this is no name: 1 to {MOST_NAME_BYTES} letters, digits, - and _ are allowed"
                );
                Err(Problem::new(kind, name, text))
            }
        }
    }

    /// Fails with the first object that cannot be, whatever the others are.
    fn check_each(&self) -> Result<()> {
        for (rule, number) in self.rules.iter().zip(1..) {
            let number: usize = number;
            of(Kind::Rule, &number.to_string(), rule.check())?;
        }
        for (name, path) in &self.paths {
            of(Kind::Path, name, path.check())?;
        }
        for (name, behaviour) in &self.behaviours {
            let checked = behaviour.check();
            let device = behaviour.device().map(DeviceName::as_str);
            let checked =
                checked.and_then(|()| device.map_or(Ok(()), |name| self.check_port(name)));
            of(Kind::Behaviour, name, checked)?;
        }
        for (name, classed) in &self.flows {
            of(Kind::Flow, name, classed.check())?;
        }
        for (name, counted) in &self.monitors {
            of(Kind::Monitor, name, counted.monitor().check())?;
        }
        for (name, session) in &self.sessions {
            of(Kind::Session, name, session.check())?;
        }
        for (name, route) in &self.kernel_routes {
            of(Kind::KernelRoute, name, route.check())?;
        }
        Ok(())
    }

    fn check_chains(&self) -> Result<()> {
        for (name, chain) in &self.chains {
            of(Kind::Chain, name, self.hook.check(chain))?;
            // A list without rules lets all packets through, which nobody who has a chain with it wants.
            if self.rules.is_empty() && has(chain, ACL) {
                let text = format!(
                    "it has {ACL}, and without rules that lets all packets through; add rules, or take {ACL} out"
                );
                return Err(Problem::new(Kind::Chain, name, text));
            }
        }
        Ok(())
    }

    fn check_classes(&self) -> Result<()> {
        for (destination, way) in &self.classes {
            of(Kind::Class, &destination.to_string(), self.check_way(way))?;
        }
        Ok(())
    }

    fn check_flows(&self) -> Result<()> {
        let mut known = BTreeMap::new();
        for (name, classed) in &self.flows {
            of(Kind::Flow, name, self.check_way(&classed.class))?;
            let flow = of(Kind::Flow, name, classed.flow())?;
            if let Some(other) = known.insert(flow, name) {
                let text = format!(
                    "the flow {other} has the same addresses, protocol and ports, or label; remove one of them"
                );
                return Err(Problem::new(Kind::Flow, name, text));
            }
        }
        Ok(())
    }

    fn check_way(&self, way: &Way) -> anyhow::Result<()> {
        let Way::Fast(fast) = way else {
            return Ok(());
        };
        let Fast {
            chain, lanes, from, ..
        } = fast;
        let programs = find("chain", chain, &self.chains)?;
        let path = fast.path.as_ref();
        let path = path.map(|name| find("path", name, &self.paths));
        if let (None, Some(program)) = (path.transpose()?, programs.needs_path()) {
            bail!(
                "the chain {chain} has {}, which needs a path; add: path = NAME",
                program.name
            );
        }
        let behaviour = fast.behaviour.as_ref();
        let behaviour = behaviour.map(|name| find("behaviour", name, &self.behaviours));
        let does = behaviour.transpose()?.map(Behaviour::program);
        if let Some(program) = programs.needs_behaviour() {
            ensure!(
                does == Some(program.name),
                "the chain {chain} has {}, which needs a behaviour that it can do; add: behaviour = NAME",
                program.name
            );
        }
        ensure!(
            *from != Some(Origin::Inside) || !self.inside.is_empty(),
            "it is for packets from inside, and no device is; add: inside = [NAME]"
        );
        ensure!(
            lanes.is_none() || has(programs, LANES),
            "the chain {chain} has no {LANES}, which hands that on; add it to the chain, or leave {LANES} out"
        );
        Ok(())
    }

    fn check_routes(&self) -> Result<()> {
        let check = |destination, port: &String| {
            ensure!(
                destination != Destination::Default,
                "a route has an address or a prefix; write the default as 0.0.0.0/0 and ::/0"
            );
            self.check_port(port)
        };
        for (destination, route) in &self.routes {
            let checked = check(*destination, &route.port);
            of(Kind::Route, &destination.to_string(), checked)?;
        }
        Ok(())
    }

    fn check_inside(&self, name: &str) -> anyhow::Result<()> {
        ensure!(
            self.hook == Hook::Xdp,
            "packets come from inside or outside at {}, and this instance is at {}, where packets leave; leave it out",
            Hook::Xdp,
            self.hook
        );
        ensure!(
            self.devices.contains(name),
            "{name} is not one of the devices: {}",
            listed(&mut self.devices.iter())
        );
        Ok(())
    }

    fn check_port(&self, name: &str) -> anyhow::Result<()> {
        ensure!(
            self.ports.contains(name),
            "{name} is not one of the ports: {}",
            listed(&mut self.ports.iter())
        );
        Ok(())
    }

    fn check_monitors(&self) -> Result<()> {
        let mut flows = BTreeMap::new();
        let mut of_size = BTreeMap::<usize, usize>::new();
        for (name, counted) in &self.monitors {
            let checked = self.check_monitor(counted, &mut of_size);
            let flow = of(Kind::Monitor, name, checked)?;
            if let Some(other) = flows.insert((flow, counted.direction), name) {
                let text = format!(
                    "the monitor {other} counts the same flow in the same direction; remove one of them"
                );
                return Err(Problem::new(Kind::Monitor, name, text));
            }
        }
        Ok(())
    }

    /// Fails if the packets of a monitored flow have no place for the colour, so that nothing is counted. Earlier versions counted
    /// packets with any FlowMonID there.
    fn check_colours(&self) -> Result<()> {
        match self.without_colour().next() {
            None => Ok(()),
            Some(name) => {
                let text = "the flow has no option for the colour; give the monitor the flow-id of its packets, or a dscp-bit";
                Err(Problem::new(Kind::Monitor, name, text))
            }
        }
    }

    /// Returns the names of the monitors whose flows have no place for the colour.
    pub(super) fn without_colour(&self) -> impl Iterator<Item = &String> {
        let monitors = self.monitors.iter();
        let without = monitors.filter(|(_, one)| {
            one.path.is_none() && one.flow_id.is_none() && one.dscp_bit.is_none()
        });
        without.map(|(name, _)| name)
    }

    /// Counts the flows of each size; returns the flow of a monitor.
    fn check_monitor(
        &self,
        counted: &Counted,
        of_size: &mut BTreeMap<usize, usize>,
    ) -> anyhow::Result<Flow> {
        let flow = self.flow(counted)?;
        if let (Some(path), None) = (&counted.path, counted.dscp_bit) {
            let known = find("path", path, &self.paths)?;
            ensure!(
                known.flow_id.is_some(),
                "the path {path} has no option for the colour; give the path a flow-id, or the monitor a dscp-bit"
            );
        }
        let sids = flow.sids().len();
        let count = of_size.entry(sids).or_default();
        *count += 1;
        ensure!(
            *count <= FLOWS,
            "{FLOWS} flows with {sids} SIDs are monitored already, and no more are allowed"
        );
        Ok(flow)
    }
}

/// Says of which object a result is.
fn of<T, E: Display>(kind: Kind, name: &str, result: std::result::Result<T, E>) -> Result<T> {
    result.map_err(|error| Problem::new(kind, name, error))
}

/// Fails if no device can have this name.
fn device_name(name: &str) -> anyhow::Result<()> {
    name.parse::<DeviceName>().map(drop)
}

/// Returns what has this name; fails with the names that there are.
pub(super) fn find<'a, T>(
    what: &str,
    name: &str,
    known: &'a BTreeMap<String, T>,
) -> anyhow::Result<&'a T> {
    known.get(name).with_context(|| {
        let known = listed(&mut known.keys());
        format!("there is no {what} `{name}`; there are {known}")
    })
}

/// Returns the names that there are, as far as they fit into a sentence.
fn listed(names: &mut dyn ExactSizeIterator<Item = &String>) -> String {
    const MOST: usize = 10;
    let first: Vec<&str> = names.take(MOST).map(String::as_str).collect();
    match (first.join(", "), names.len()) {
        (none, 0) if none.is_empty() => "none".to_owned(),
        (all, 0) => all,
        (first, more) => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use crate::configuration::error;

    const PATH: &str = "[paths.p]\nsource = \"fd00::1\"\nsids = [\"fc00::1\"]\n";

    #[test]
    fn entries_are_checked_one_by_one() {
        assert_eq!(
            error("[chains]\na = \"enc,mon-in\"").split(';').next(),
            Some("f:2: chain a: after mon-in a packet has nowhere to go")
        );
        assert_eq!(
            error("[chains]\n\"a b\" = \"drop\""),
            "f:2: chain a b: this is no name: 1 to 63 letters, digits, - and _ are allowed"
        );
        assert_eq!(
            error("[classes]\n\"10.0.0.1/8\" = \"kernel\""),
            "f:2: class 10.0.0.1/8: 10.0.0.1/8 has bits beyond its prefix; 10.0.0.0/8 has not"
        );
        assert_eq!(
            error("[classes]\n\"10.0.0.1\" = \"kernel\"\n\"10.0.0.1/32\" = \"kernel\""),
            "f:3: class 10.0.0.1/32: 10.0.0.1 stands here twice"
        );
        assert_eq!(
            error("[paths.p]\nsids = [\n\"fc00::1\"]\nsource = \"10.0.0.1\""),
            "f:4: path p: source is `10.0.0.1`: an IPv6 address is allowed, such as 2001:db8::1"
        );
        assert_eq!(
            error("[paths.p]\nsource = \"fd00::1\"\nsids = []"),
            "f:1: path p: a path of 0 SIDs cannot be: 1 to 10 are allowed"
        );
        assert_eq!(
            error("ports = [\"e\"]\n[routes]\n\"::/0\" = { port = \"e\", next-hop = \"2:0:0:0:0:2\" }"),
            "f:3: route ::/0: next-hop is `2:0:0:0:0:2`: an Ethernet address is allowed, such as 02:00:00:00:00:01"
        );
        assert_eq!(
            error("[routes]\ndefault = { port = \"e\", next-hop = \"02:00:00:00:00:02\" }"),
            "f:2: route default: a route has an address or a prefix; write the default as 0.0.0.0/0 and ::/0"
        );
        assert!(error("devices = [\"a/b\"]")
            .starts_with("f:1: device a/b: no device can have this name"));
    }

    #[test]
    fn behaviours_have_what_they_need_and_a_program_that_does_them() {
        let behaviour = |text: &str| error(&format!("[behaviours]\nb = {{ {text} }}"));
        for (text, said) in [
            (
                "action = \"End\", table = 1",
                "unknown field `table`, expected `flavours`",
            ),
            ("action = \"End.X\"", "missing field `next-hop`"),
            (
                "action = \"End.DT6\", flavours = [\"psp\"]",
                "unknown field `flavours`, expected `table`",
            ),
            (
                "action = \"End.DT6\", table = 0",
                "table is 0: 1 to 4294967295 are allowed",
            ),
        ] {
            assert_eq!(behaviour(text), format!("f:2: behaviour b: {said}"));
        }
        let to = |text: &str| behaviour(&format!("action = \"End.X\", next-hop = \"{text}"));
        assert!(to("ff02::1\"").contains("can be no next hop"));
        assert!(to("fe80::1\"").ends_with("add: device = NAME"));
        assert_eq!(
            to("fe80::1\", device = \"eth1\""),
            "f:2: behaviour b: eth1 is not one of the ports: none"
        );
        assert!(to("fe80::1\", device = \"a/b\"").contains("no device can have this name"));
        assert_eq!(
            behaviour("action = \"End.B6\""),
            "f:2: behaviour b: unknown variant `End.B6`, expected one of `End`, `End.X`, `End.DT4`, `End.DT6`, `End.DT46`"
        );
        let class = |behaviour: &str| {
            error(&format!(
                "[chains]\nc = \"dec\"\n[behaviours]\nb = {{ action = \"End\" }}\n[classes]\ndefault = {{ chain = \"c\"{behaviour} }}"
            ))
        };
        let needs = "f:6: class default: the chain c has dec, which needs a behaviour that it can do; add: behaviour = NAME";
        assert_eq!(class(""), needs);
        assert_eq!(class(", behaviour = \"b\""), needs);
        assert_eq!(
            class(", behaviour = \"a\""),
            "f:6: class default: there is no behaviour `a`; there are b"
        );
    }

    #[test]
    fn rules_are_checked_one_by_one() {
        let rules =
            |rule: &str| error(&format!("rules = [\n{{ action = \"allow\" }},\n{rule},\n]"));
        assert_eq!(
            rules("{ action = \"deny\", source = \"10.0.0.1/8\" }"),
            "f:3: rule 2: 10.0.0.1/8 has bits beyond its prefix; 10.0.0.0/8 has not"
        );
        assert_eq!(
            rules("{ action = \"deny\", protocol = 256 }"),
            "f:3: rule 2: protocol is 256: 0 to 255 are allowed"
        );
        assert_eq!(
            rules("{ action = \"deny\", destination-ports = 65536 }"),
            "f:3: rule 2: destination-ports is 65536: 0 to 65535 are allowed"
        );
        assert_eq!(
            rules("{ action = \"deny\", protocol = 1, source-ports = \"1-2\" }"),
            "f:3: rule 2: protocol 1 has no ports; take one of [6, 17, 33, 132, 136], or no ports"
        );
        assert_eq!(
            rules("{ action = \"deny\", source-ports = \"http\" }"),
            "f:3: rule 2: invalid value: string \"http\", expected a port, or \"FIRST-LAST\""
        );
        assert_eq!(
            rules("{ action = \"reject\" }"),
            "f:3: rule 2: unknown variant `reject`, expected `allow` or `deny`"
        );
        let many = vec!["{ action = \"allow\" }"; 257].join(",");
        assert_eq!(
            error(&format!("rules = [{many}]")),
            "f:1: there are 257 rules: 256 are allowed"
        );
        assert_eq!(
            error("[chains]\na = \"acl,drop\""),
            "f:2: chain a: it has acl, and without rules that lets all packets through; add rules, or take acl out"
        );
    }

    #[test]
    fn names_lead_somewhere() {
        assert_eq!(
            error("[classes]\ndefault = { chain = \"a\" }"),
            "f:2: class default: there is no chain `a`; there are none"
        );
        assert_eq!(
            error("[chains]\na = \"enc,fw-fib\"\n[classes]\ndefault = { chain = \"a\" }"),
            "f:4: class default: the chain a has enc, which needs a path; add: path = NAME"
        );
        assert_eq!(
            error("ports = [\"eth1\"]\n[routes]\n\"::/0\" = { port = \"eth2\", next-hop = \"02:00:00:00:00:02\" }"),
            "f:3: route ::/0: eth2 is not one of the ports: eth1"
        );
        assert_eq!(
            error("[monitors]\nm = { direction = \"in\", path = \"p\" }"),
            "f:2: monitor m: there is no path `p`; there are none"
        );
    }

    #[test]
    fn what_is_inside_is_one_of_the_devices() {
        assert_eq!(
            error("devices = [\"e\"]\ninside = [\"f\"]"),
            "f:2: inside f: f is not one of the devices: e"
        );
        assert_eq!(
            error("hook = \"tcx\"\ndevices = [\"e\"]\ninside = [\"e\"]"),
            "f:3: inside e: packets come from inside or outside at XDP, and this instance is at tcx, where packets leave; leave it out"
        );
        let class = "[chains]\na = \"drop\"\n[classes]\ndefault = { chain = \"a\", from =";
        assert_eq!(
            error(&format!("{class} \"inside\" }}")),
            "f:4: class default: it is for packets from inside, and no device is; add: inside = [NAME]"
        );
        assert_eq!(
            error(&format!("{class} \"outside\" }}")),
            "f:4: class default: unknown variant `outside`, expected `inside` or `anywhere`"
        );
    }

    #[test]
    fn chains_run_at_the_hook() {
        assert_eq!(
            error("hook = \"tcx\"\n[chains]\na = \"mon-out,dec\""),
            "f:3: chain a: dec runs at XDP alone, and this instance is at tcx, where packets leave; take it out of the chain"
        );
        assert_eq!(
            error("hook = \"tc\""),
            "f:1: unknown variant `tc`, expected `xdp` or `tcx`"
        );
        assert_eq!(
            error("hook = \"tcx\"\nmode = \"generic\""),
            "f:2: a mode is one of XDP, and this instance is at tcx; leave it out"
        );
        assert_eq!(
            error("mode = \"skb\""),
            "f:1: unknown variant `skb`, expected `native` or `generic`"
        );
    }

    #[test]
    fn monitors_have_one_flow_each_and_a_place_for_the_colour() {
        let monitors = |text: &str| error(&format!("{PATH}[monitors]\n{text}"));
        assert_eq!(
            monitors("m = { direction = \"in\", path = \"p\" }"),
            "f:5: monitor m: the path p has no option for the colour; give the path a flow-id, or the monitor a dscp-bit"
        );
        assert_eq!(
            monitors("m = { direction = \"in\", path = \"p\", source = \"::1\" }"),
            "f:5: monitor m: it has to have either a path, or a source, sids and perhaps a flow-id"
        );
        assert_eq!(
            monitors("m = { direction = \"in\", path = \"p\", flow-id = 1 }"),
            "f:5: monitor m: it has to have either a path, or a source, sids and perhaps a flow-id"
        );
        assert_eq!(
            monitors("m = { direction = \"out\", source = \"fd00::1\", sids = [\"fc00::1\"] }"),
            "f:5: monitor m: the flow has no option for the colour; give the monitor the flow-id of its packets, or a dscp-bit"
        );
        assert_eq!(
            monitors("m = { direction = \"out\", source = \"fd00::1\", sids = [\"fc00::1\"], flow-id = 1048576 }"),
            "f:5: monitor m: flow-id is 1048576: 0 to 1048575 are allowed"
        );
        assert_eq!(
            monitors("m = { direction = \"in\", path = \"p\", dscp-bit = 6 }"),
            "f:5: monitor m: dscp-bit is 6: 0 to 5 are allowed"
        );
        assert_eq!(
            monitors("m = { direction = \"in\", path = \"p\", dscp-bit = 0, period-ms = 9 }"),
            "f:5: monitor m: period-ms is 9: 10 to 86400000 are allowed"
        );
        let twice = "m = { direction = \"in\", path = \"p\", dscp-bit = 0 }\n\
                     n = { direction = \"in\", source = \"fd00::1\", sids = [\"fc00::1\"], dscp-bit = 1 }";
        assert_eq!(
            monitors(twice),
            "f:6: monitor n: the monitor m counts the same flow in the same direction; remove one of them"
        );
    }
}
