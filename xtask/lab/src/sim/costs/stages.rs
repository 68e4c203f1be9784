// SPDX-License-Identifier: GPL-2.0

//! The costs of the stages of FALCON's modes, and the cores that the stages were on, both read off a row.
//!
//! A row says how much work each core did, not for which stage. Functions that one stage alone has show which cores had the first
//! stage of flows. The cores of the later stages follow from that by the module's own choice. With several flows a core has
//! several stages; the costs of the stages are then those that fit all cores best.

use mflow_algo::algo::headers::flow_key::{FlowHasher, ETH_P_IP, IPPROTO_UDP};
use mflow_algo::algo::stage::{choose, StageKey};

use super::rows::{FALCON_DEV, FALCON_FUNC};
use xtask::results::row::{Core, Row};

/// VXLAN; bridge and veth; the container.
pub(crate) const NR_STAGES: usize = 3;
/// With more CPUs there are several for the next stage, and which one it is cannot be told.
const MOST_CPUS: usize = 4;
/// Functions that the first and the last stage have for each packet, and no other.
const MARKERS: [(usize, &[&str]); 2] = [
    (0, &["vxlan_rcv"]),
    (2, &["__udp_enqueue_schedule_skb", "tcp_v4_rcv"]),
];
/// Functions that GRO calls and that are not named after it. Nothing else calls them on a NIC's core that hands packets on behind
/// GRO.
const CALLED_BY_GRO: [&str; 4] = [
    "__udp4_lib_lookup",
    "udp4_lib_lookup2",
    "__skb_checksum",
    "csum_partial",
];

/// The seed of the hash of flows. The module draws its own with each boot.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The costs of stages, in instructions per packet, each with the cost of coming there from another core.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StageCosts {
    /// The cost of the NIC's core in `falcon-dev`, and GRO's part of it, which is the first stage's work in `falcon-func`.
    pub(crate) nic: f64,
    pub(crate) gro: f64,
    pub(crate) stages: [f64; NR_STAGES],
    /// As in [`Placement`].
    pub(crate) first_stage_insn: f64,
}

/// The CPUs that a row's flows were on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placement {
    /// The number of flows whose first stage is on each of its CPUs.
    first: Vec<usize>,
    /// The instructions per delivered packet that are seen of the first stage: more than in another row if more packets are
    /// dropped behind it.
    pub(crate) first_stage_insn: f64,
}

/// Returns whether a mode has stages, so that its rows can be predicted.
pub(crate) fn has_stages(mode: &str) -> bool {
    let name = mode.strip_suffix("-2").unwrap_or(mode);
    [FALCON_DEV, FALCON_FUNC].contains(&name)
}

/// Returns the key of some flow.
pub(crate) fn stage_key(flow: u16) -> StageKey {
    let mut packet = [0; 28];
    packet[0] = 0x45;
    packet[9] = IPPROTO_UDP;
    packet[20..22].copy_from_slice(&flow.to_be_bytes());
    StageKey::of(FlowHasher::new(SEED), ETH_P_IP, &packet).expect("IPv4 has a key")
}

/// Returns the CPU of each stage, by the module's choice.
fn way(key: StageKey, nr_cpus: usize) -> [usize; NR_STAGES] {
    let mut here = None;
    std::array::from_fn(|stage| {
        // CAST: a few, both.
        let chosen = choose(key, 1 + stage as u32, here, nr_cpus as u8, 0);
        here = Some(chosen);
        usize::from(chosen)
    })
}

/// Returns a flow for each CPU whose first stage is there.
fn keys(nr_cpus: usize) -> Vec<StageKey> {
    (0..nr_cpus)
        .filter_map(|cpu| {
            (0..=u16::MAX)
                .map(stage_key)
                .find(|key| way(*key, nr_cpus)[0] == cpu)
        })
        .collect()
}

impl Placement {
    /// Reads it off a row; the error says why it cannot be.
    pub(crate) fn of(row: &Row) -> Result<Self, String> {
        let cpus = lanes(row);
        if cpus.is_empty() || cpus.len() > MOST_CPUS {
            return Err(format!(
                "where stages are can be told with 1 to {MOST_CPUS} CPUs, not with {}",
                cpus.len()
            ));
        }
        let marked = MARKERS.map(|(stage, names)| (stage, Marked::of(&cpus, names)));
        for ((_, names), (_, marked)) in MARKERS.iter().zip(&marked) {
            if marked.0.iter().all(|core| core.insn.is_none()) {
                return Err(format!("no core shows {}", names.join(" or ")));
            }
        }
        let stage = |first: &[usize], stage: usize| -> Vec<f64> {
            shares(first).iter().map(|cpu| cpu[stage]).collect()
        };
        let error = |first: &[usize]| -> f64 {
            let errors = marked
                .iter()
                .map(|(number, marked)| marked.error(&stage(first, *number)));
            errors.sum()
        };
        let first = all(cpus.len(), row.flows.max(1) as usize)
            .into_iter()
            .min_by(|one, other| error(one).total_cmp(&error(other)))
            .ok_or("it has no flow")?;
        let (number, marked) = &marked[0];
        Ok(Self {
            first_stage_insn: marked.whole(&stage(&first, *number)),
            first,
        })
    }

    pub(crate) fn nr_cpus(&self) -> usize {
        self.first.len()
    }

    /// Returns the flows, as the module knows them, that are placed like this.
    pub(crate) fn flows(&self) -> Vec<StageKey> {
        let keys = keys(self.first.len()).into_iter().zip(&self.first);
        keys.flat_map(|(key, count)| vec![key; *count]).collect()
    }
}

/// Returns all ways to place this many flows.
fn all(nr_cpus: usize, flows: usize) -> Vec<Vec<usize>> {
    if nr_cpus <= 1 {
        return vec![vec![flows; nr_cpus]];
    }
    let with = |here| {
        let others = all(nr_cpus - 1, flows - here).into_iter();
        others.map(move |others| [vec![here], others].concat())
    };
    (0..=flows).flat_map(with).collect()
}

/// Returns the share of all packets that each CPU carries in each stage, of flows whose `first` one is there.
fn shares(first: &[usize]) -> Vec<[f64; NR_STAGES]> {
    let flows = first.iter().sum::<usize>() as f64;
    let mut shares = vec![[0.0; NR_STAGES]; first.len()];
    for (key, count) in keys(first.len()).into_iter().zip(first) {
        for (stage, cpu) in way(key, first.len()).into_iter().enumerate() {
            shares[cpu][stage] += *count as f64 / flows;
        }
    }
    shares
}

impl StageCosts {
    /// Reads them off a row of `falcon-dev`; the error says why they cannot be.
    pub(crate) fn of(row: &Row) -> Result<Self, String> {
        let placement = Placement::of(row)?;
        let shares = shares(&placement.first);
        let measured = lanes(row).into_iter().map(|core| core.insn_per_packet);
        let stages = fit(&shares, &measured.collect::<Vec<f64>>())
            .filter(|stages| stages.iter().all(|insn| *insn > 0.0))
            .ok_or("its stages share cores so evenly that none can be told from the others")?;
        let nic = cores(row, "nic")
            .max_by(|one, other| one.insn_per_packet.total_cmp(&other.insn_per_packet));
        let nic = nic.ok_or("no core has the role `nic`")?;
        let gro = nic.top.iter().filter(|function| {
            function.name.contains("gro") || CALLED_BY_GRO.contains(&function.name.as_str())
        });
        let gro: f64 = gro.map(|function| function.insn_per_packet).sum();
        Ok(Self {
            nic: nic.insn_per_packet,
            gro,
            stages,
            first_stage_insn: placement.first_stage_insn,
        })
    }

    /// Returns them for a mode: in `falcon-func` GRO is the first stage's.
    pub(crate) fn in_mode(&self, mode: &str) -> Self {
        if !mode.starts_with(FALCON_FUNC) {
            return self.clone();
        }
        let mut costs = self.clone();
        costs.nic -= self.gro;
        costs.stages[0] += self.gro;
        costs
    }

    /// Returns the cost of all stages.
    pub(crate) fn behind_nic(&self) -> f64 {
        self.stages.iter().sum()
    }
}

fn cores<'a>(row: &'a Row, role: &'static str) -> impl Iterator<Item = &'a Core> {
    let cores = row.insn_per_packet.iter().flat_map(|insn| &insn.by_cpu);
    cores.filter(move |core| core.role == role)
}

/// Returns the CPUs of the stages, in their order; also those without one.
fn lanes(row: &Row) -> Vec<&Core> {
    cores(row, "lane").collect()
}

/// The work of each core in functions that only one stage has.
struct Marked(Vec<MarkedCore>);

struct MarkedCore {
    /// `None`: too little to be listed.
    insn: Option<f64>,
    /// The smallest count that is listed.
    least: f64,
}

impl Marked {
    fn of(cpus: &[&Core], names: &[&str]) -> Self {
        let cores = cpus.iter().map(|core| {
            let all = core.top.iter().map(|function| function.insn_per_packet);
            let marked = core
                .top
                .iter()
                .filter(|function| names.contains(&function.name.as_str()));
            MarkedCore {
                insn: marked
                    .map(|function| function.insn_per_packet)
                    .reduce(|one, other| one + other),
                least: all.reduce(f64::min).unwrap_or(0.0),
            }
        });
        Self(cores.collect())
    }

    fn listed(&self, shares: &[f64]) -> Vec<(f64, f64)> {
        let cores = self.0.iter().zip(shares);
        cores
            .filter_map(|(core, share)| Some((core.insn?, *share)))
            .collect()
    }

    /// Returns the cost of all packets in these functions that best fits cores with these shares of the stage.
    fn whole(&self, shares: &[f64]) -> f64 {
        let listed = self.listed(shares);
        let product: f64 = listed.iter().map(|(insn, share)| insn * share).sum();
        let square: f64 = listed.iter().map(|(_, share)| share * share).sum();
        product / square.max(f64::MIN_POSITIVE)
    }

    /// Returns the distance from the costs that cores with these shares of the stage would show, 0 to about 1.
    fn error(&self, shares: &[f64]) -> f64 {
        let whole = self.whole(shares);
        let off = self.0.iter().zip(shares).map(|(core, share)| {
            let modelled = whole * share;
            core.insn
                .map_or((modelled - core.least).max(0.0), |insn| insn - modelled)
        });
        let square: f64 = self
            .listed(shares)
            .iter()
            .map(|(insn, _)| insn * insn)
            .sum();
        off.map(|off| off * off).sum::<f64>() / square
    }
}

/// Returns the costs with which `shares` come nearest to the measured work of each core: least squares, by Cramer's rule.
fn fit(shares: &[[f64; NR_STAGES]], measured: &[f64]) -> Option<[f64; NR_STAGES]> {
    let sums = |value: &dyn Fn(usize) -> f64| (0..shares.len()).map(value).sum::<f64>();
    let matrix: [[f64; NR_STAGES]; NR_STAGES] = std::array::from_fn(|row| {
        std::array::from_fn(|column| sums(&|cpu| shares[cpu][row] * shares[cpu][column]))
    });
    let right: [f64; NR_STAGES] =
        std::array::from_fn(|row| sums(&|cpu| shares[cpu][row] * measured[cpu]));
    let whole = determinant(&matrix);
    let product: f64 = (0..NR_STAGES).map(|at| matrix[at][at]).product();
    // If it is small beside what it would be if each stage had cores of its own, a small error becomes a large one.
    (whole > product * LEAST_DETERMINANT).then(|| {
        std::array::from_fn(|column| {
            let mut replaced = matrix;
            for (row, right) in replaced.iter_mut().zip(right) {
                row[column] = right;
            }
            determinant(&replaced) / whole
        })
    })
}

const LEAST_DETERMINANT: f64 = 1e-2;

fn determinant(m: &[[f64; NR_STAGES]; NR_STAGES]) -> f64 {
    let minor = |a: usize, b: usize| m[1][a] * m[2][b] - m[1][b] * m[2][a];
    m[0][0] * minor(1, 2) - m[0][1] * minor(0, 2) + m[0][2] * minor(0, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::costs::fixture::staged_row;

    const STAGES: [f64; NR_STAGES] = [2_500.0, 2_000.0, 1_500.0];

    fn row(first: &[usize]) -> Row {
        staged_row(FALCON_DEV, (3_000.0, 1_400.0), first, STAGES)
    }

    #[test]
    fn costs_and_places_are_read_off_whatever_shares_a_core() {
        for first in [[3, 0, 0, 0], [0, 2, 0, 1], [1, 1, 1, 0], [0, 1, 2, 2]] {
            let row = row(&first);
            assert_eq!(Placement::of(&row).expect("a placement").first, first);
            let costs = StageCosts::of(&row).expect("costs");
            let off = costs.stages.iter().zip(STAGES);
            assert!(
                off.clone().all(|(found, insn)| (found - insn).abs() < 1.0),
                "{first:?} {costs:?}"
            );
            assert_eq!((costs.nic, costs.gro), (3_000.0, 1_400.0));
        }
    }

    #[test]
    fn what_is_too_little_to_be_listed_is_not_taken_for_nothing() {
        let mut row = row(&[1, 1, 2, 1]);
        let by_cpu = &mut row.insn_per_packet.as_mut().expect("measured").by_cpu;
        for core in by_cpu.iter_mut().filter(|core| core.role == "lane") {
            // The lists end above a fifth of the last stage's marker.
            core.top.retain(|function| function.insn_per_packet > 16.0);
        }
        let listed = by_cpu.iter().flat_map(|core| &core.top);
        let ends = listed.filter(|function| function.name == "__udp_enqueue_schedule_skb");
        assert_eq!(ends.count(), 1);
        let placement = Placement::of(&row).expect("a placement");
        assert_eq!(placement.first, [1, 1, 2, 1]);
    }

    #[test]
    fn what_cannot_be_told_is_said() {
        let even = row(&[1, 1, 1, 1]);
        assert!(StageCosts::of(&even).is_err_and(|why| why.contains("so evenly")));
        let mut unnamed = row(&[3, 0, 0, 0]);
        for core in &mut unnamed.insn_per_packet.as_mut().expect("measured").by_cpu {
            core.top.clear();
        }
        assert!(Placement::of(&unnamed).is_err_and(|why| why.contains("vxlan_rcv")));
        let many = row(&[1, 0, 0, 0, 0]);
        assert!(Placement::of(&many).is_err_and(|why| why.contains("1 to 4 CPUs")));
    }

    #[test]
    fn each_cpu_has_a_flow_and_stages_follow_in_a_row() {
        for nr_cpus in 1..=MOST_CPUS {
            for (cpu, key) in keys(nr_cpus).into_iter().enumerate() {
                let next = [0, 1, 2].map(|steps| (cpu + steps) % nr_cpus);
                assert_eq!(way(key, nr_cpus), next);
            }
        }
    }

    #[test]
    fn only_falcons_modes_have_stages() {
        assert!(
            ["falcon-dev", "falcon-func", "falcon-dev-2", "falcon-func-2"]
                .iter()
                .all(|mode| has_stages(mode))
        );
        assert!(!["mflow", "rps", "host+"]
            .iter()
            .any(|mode| has_stages(mode)));
    }
}
