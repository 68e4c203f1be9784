// SPDX-License-Identifier: GPL-2.0

//! Checks that the entries of a configuration fit together: names lead to something, chains have the path or behaviour that they
//! need, and there are no more of anything than there can be.

use std::collections::BTreeMap;

use mflow_hike::limits::{BEHAVIOURS, CHAINS, CLASSES, FLOWS, PATHS, PORTS, ROUTES};
use mflow_hike::{Chain, Destination, Marking};

use super::at::{At, Result};
use super::objects::Kind;
use super::{kernel, Configuration, FlowOf, Problem, Way};

/// A chain of its own takes what is to take the kernel's path.
pub(crate) const OWN_CHAINS: usize = 1;

/// Each change asks the kernel for all of its routes that are ours.
const KERNEL_ROUTES: usize = 16_384;

/// The programs that need the access list, and the hint of a class.
const ACL: &str = "acl";
const LANES: &str = "lanes";

fn has(chain: &Chain, program: &str) -> bool {
    chain.programs().iter().any(|one| one.name == program)
}

impl Configuration {
    /// Fails with the first thing that does not fit.
    pub(super) fn check(&self) -> Result<()> {
        self.check_sizes()?;
        self.check_chains()?;
        self.check_rules()?;
        self.check_classes()?;
        self.check_flows()?;
        self.check_routes()?;
        self.check_monitors()?;
        kernel::check(&self.kernel_routes)
    }

    fn check_chains(&self) -> Result<()> {
        for (name, chain) in &self.chains {
            let at = At {
                kind: Kind::Chain,
                name,
            };
            self.hook.check(chain).map_err(|error| at.problem(error))?;
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<()> {
        let is_exact = |destination: &&Destination| matches!(destination, Destination::Address(_));
        let exact = self.classes.keys().filter(is_exact).count();
        for (kind, what, count, most) in [
            (
                Kind::Chain,
                "chains",
                self.chains.len(),
                CHAINS - OWN_CHAINS,
            ),
            (Kind::Path, "paths", self.paths.len(), PATHS),
            // The first place stands for none.
            (
                Kind::Behaviour,
                "behaviours",
                self.behaviours.len(),
                BEHAVIOURS - 1,
            ),
            (Kind::Class, "addresses as classes", exact, CLASSES),
            (
                Kind::Class,
                "prefixes as classes",
                self.classes.len() - exact,
                CLASSES,
            ),
            (Kind::Flow, "flows", self.flows.len(), CLASSES),
            (Kind::Route, "routes", self.routes.len(), ROUTES),
            (Kind::Port, "ports", self.ports.len(), PORTS),
            (
                Kind::KernelRoute,
                "kernel-routes",
                self.kernel_routes.len(),
                KERNEL_ROUTES,
            ),
        ] {
            if count > most {
                let text = format!("there are {count} {what}: {most} are allowed");
                return Err(Problem::new([kind.section()], text));
            }
        }
        Ok(())
    }

    /// A list without rules lets all packets through, which nobody who has a chain with it wants.
    fn check_rules(&self) -> Result<()> {
        let mut chains = self.chains.iter().filter(|(_, chain)| has(chain, ACL));
        match chains.next() {
            Some((name, _)) if self.rules.is_empty() => {
                let at = At {
                    kind: Kind::Chain,
                    name,
                };
                Err(at.problem(format!(
                    "it has {ACL}, and without rules that lets all packets through; add rules, or take {ACL} out"
                )))
            }
            _ => Ok(()),
        }
    }

    fn check_flows(&self) -> Result<()> {
        let mut known = BTreeMap::new();
        for (name, classed) in &self.flows {
            let at = At {
                kind: Kind::Flow,
                name,
            };
            self.check_way(at, &classed.way)?;
            if let Some(other) = known.insert(classed.flow, name) {
                return Err(at.problem(format!(
                    "the flow {other} has the same addresses, protocol and ports, or label; remove one of them"
                )));
            }
        }
        Ok(())
    }

    fn check_classes(&self) -> Result<()> {
        for (destination, way) in &self.classes {
            let name = destination.to_string();
            let at = At {
                kind: Kind::Class,
                name: &name,
            };
            self.check_way(at, way)?;
        }
        Ok(())
    }

    fn check_way(&self, at: At<'_>, way: &Way) -> Result<()> {
        let Way::Fast {
            chain,
            path,
            behaviour,
            lanes,
        } = way
        else {
            return Ok(());
        };
        let Some(programs) = self.chains.get(chain) else {
            return Err(at.problem(missing("chain", chain, &self.chains)));
        };
        match (path, programs.needs_path()) {
            (Some(path), _) if !self.paths.contains_key(path) => {
                return Err(at.problem(missing("path", path, &self.paths)));
            }
            (None, Some(program)) => {
                return Err(at.problem(format!(
                    "the chain {chain} has {}, which needs a path; add: path = NAME",
                    program.name
                )));
            }
            _ => {}
        }
        let known = match behaviour {
            None => None,
            Some(name) => match self.behaviours.get(name) {
                Some(known) => Some(known.program()),
                None => return Err(at.problem(missing("behaviour", name, &self.behaviours))),
            },
        };
        if let Some(program) = programs.needs_behaviour() {
            if known != Some(program.name) {
                return Err(at.problem(format!(
                    "the chain {chain} has {}, which needs a behaviour that it can do; add: behaviour = NAME",
                    program.name
                )));
            }
        }
        if lanes.is_some() && !has(programs, LANES) {
            return Err(at.problem(format!(
                "the chain {chain} has no {LANES}, which hands that on; add it to the chain, or leave {LANES} out"
            )));
        }
        Ok(())
    }

    fn check_routes(&self) -> Result<()> {
        for (destination, route) in &self.routes {
            let name = destination.to_string();
            let at = At {
                kind: Kind::Route,
                name: &name,
            };
            if *destination == Destination::Default {
                return Err(at.problem(
                    "a route has an address or a prefix; write the default as 0.0.0.0/0 and ::/0",
                ));
            }
            if !self.ports.contains(&route.port) {
                let ports: Vec<&str> = self.ports.iter().map(String::as_str).collect();
                return Err(at.problem(format!(
                    "{} is not one of the ports: {}",
                    route.port,
                    listed(&ports)
                )));
            }
        }
        Ok(())
    }

    fn check_monitors(&self) -> Result<()> {
        let mut flows = BTreeMap::new();
        let mut of_size = BTreeMap::<usize, usize>::new();
        for (name, counted) in &self.monitors {
            let at = At {
                kind: Kind::Monitor,
                name,
            };
            if let FlowOf::Path(path) = &counted.flow {
                let Some(known) = self.paths.get(path) else {
                    return Err(at.problem(missing("path", path, &self.paths)));
                };
                if counted.monitor.marking == Marking::Option && known.flow_id.is_none() {
                    return Err(at.problem(format!(
                        "the path {path} has no option for the colour; give the path a flow-id, or the monitor a dscp-bit"
                    )));
                }
            }
            let flow = self.flow(&counted.flow);
            let flow = flow.map_err(|error| at.problem(error))?;
            let sids = flow.sids().len();
            let count = of_size.entry(sids).or_default();
            *count += 1;
            if *count > FLOWS {
                return Err(at.problem(format!(
                    "{FLOWS} flows with {sids} SIDs are monitored already, and no more are allowed"
                )));
            }
            if let Some(other) = flows.insert((flow, counted.direction), name) {
                return Err(at.problem(format!(
                    "the monitor {other} counts the same flow in the same direction; remove one of them"
                )));
            }
        }
        Ok(())
    }
}

fn missing<T>(what: &str, name: &str, known: &BTreeMap<String, T>) -> String {
    let known: Vec<&str> = known.keys().map(String::as_str).collect();
    format!("there is no {what} `{name}`; there are {}", listed(&known))
}

/// The names that there are, as far as they fit into a sentence.
fn listed(names: &[&str]) -> String {
    const MOST: usize = 10;
    match names {
        [] => "none".to_owned(),
        names if names.len() > MOST => format!(
            "{} and {} more",
            names[..MOST].join(", "),
            names.len() - MOST
        ),
        names => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use crate::configuration::error;

    const PATH: &str = "[paths.p]\nsource = \"fd00::1\"\nsids = [\"fc00::1\"]\n";

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
    fn chains_run_at_the_hook() {
        assert_eq!(
            error("hook = \"tcx\"\n[chains]\na = \"mon-out,dec\""),
            "f:3: chain a: dec runs at XDP alone, and this instance is at tcx, where packets leave; take it out of the chain"
        );
        assert_eq!(
            error("hook = \"tc\""),
            "f:1: unknown variant `tc`, expected `xdp` or `tcx`"
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
            "f:5: monitor m: it has to have either a path, or a source and sids"
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
                     n = { direction = \"in\", source = \"fd00::1\", sids = [\"fc00::1\"] }";
        assert_eq!(
            monitors(twice),
            "f:6: monitor n: the monitor m counts the same flow in the same direction; remove one of them"
        );
    }
}
