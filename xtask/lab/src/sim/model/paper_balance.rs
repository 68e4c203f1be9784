// SPDX-License-Identifier: GPL-2.0

//! FALCON's dynamic balancing as the paper has it (section 4.3, Algorithm 1), which the module's is compared with.
//!
//! The first choice is a hash of flow and device. If that core is loaded, a hash of the hash is the second choice, and final: going
//! on to search for the idlest core would have all flows meet there before the next sample. While the cores are loaded on average,
//! no choice is made. All of this is asked for each packet, so a flow changes cores with the loads, whatever it has in the old
//! core's queue. The module decides for all flows at once instead (`algo/load/stage_plan.rs`), and has their stages empty first.

use mflow_algo::algo::load::FULL;

/// Odd and near the golden ratio of 2^32: neighbouring device numbers end up far apart.
const GOLDEN_RATIO: u32 = 0x9e37_79b9;

/// The way a flow's stages find their cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PaperBalance {
    pub(crate) flow_hash: u32,
    /// The load from which on a core counts as loaded, in per cent; with 101 no core ever does.
    pub(crate) threshold_pct: u32,
    /// Without the second choice it is static hashing.
    pub(crate) has_second_choice: bool,
}

impl PaperBalance {
    /// Returns the place of the core that carries the flow's next packet on a device. `loads` are those of the cores to choose from,
    /// in thousandths.
    pub(crate) fn choose(&self, device: u32, loads: &[u32]) -> usize {
        let is_loaded = |load: u32| load >= self.threshold_pct.saturating_mul(FULL / 100);
        // CAST: a few cores.
        let mean = loads.iter().sum::<u32>() / (loads.len() as u32).max(1);
        if is_loaded(mean) {
            // The original path is RPS's.
            return rps_place(self.flow_hash, loads.len());
        }
        let first_hash = hash(self.flow_hash.wrapping_add(device));
        let first = place(first_hash, loads.len());
        if self.has_second_choice && loads.get(first).is_some_and(|load| is_loaded(*load)) {
            return place(hash(first_hash), loads.len());
        }
        first
    }
}

/// Returns the place of the core to which RPS gives all of a flow's work that is not the NIC's core's.
pub(crate) fn rps_place(flow_hash: u32, nr_cores: usize) -> usize {
    place(hash(flow_hash), nr_cores)
}

fn hash(value: u32) -> u32 {
    let mixed = (value ^ value >> 16).wrapping_mul(GOLDEN_RATIO);
    // The product's lower bits know little of its factor's upper ones.
    mixed ^ mixed >> 15
}

/// Returns a number below `n` that follows the upper bits of `hash`.
fn place(hash: u32, n: usize) -> usize {
    // CAST: below n, as the hash is below 2^32.
    ((u64::from(hash) * n as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORES: usize = 6;
    const CALM: [u32; CORES] = [100; CORES];

    fn balance(flow_hash: u32) -> PaperBalance {
        PaperBalance {
            flow_hash,
            threshold_pct: 85,
            has_second_choice: true,
        }
    }

    #[test]
    fn first_choices_are_spread_over_flows_and_devices() {
        let mut by_flow = [0; CORES];
        let mut by_device = [0; CORES];
        for n in 0..6_000_u32 {
            by_flow[balance(n.wrapping_mul(0x0100_0193)).choose(3, &CALM)] += 1;
            by_device[balance(0xdead_beef).choose(n, &CALM)] += 1;
        }
        for count in by_flow.into_iter().chain(by_device) {
            assert!((800..1_200).contains(&count), "{by_flow:?} {by_device:?}");
        }
    }

    #[test]
    fn a_loaded_first_choice_leads_to_the_second_which_is_final() {
        let mut left = 0;
        for flow in 0..200 {
            let both = balance(flow);
            let fixed = PaperBalance {
                has_second_choice: false,
                ..both
            };
            let first = both.choose(1, &CALM);
            let mut loads = CALM;
            loads[first] = 849;
            assert_eq!(both.choose(1, &loads), first);
            loads[first] = 850;
            assert_eq!(fixed.choose(1, &loads), first);
            let second = both.choose(1, &loads);
            left += u32::from(second != first);
            // However loaded that one is.
            loads[second] = 1_000;
            assert_eq!(both.choose(1, &loads), second);
        }
        // A sixth of the second choices is the first again.
        assert!((140..185).contains(&left), "{left}");
    }

    #[test]
    fn cores_that_are_loaded_on_average_leave_all_to_rps() {
        let (below, above) = (
            |flow| balance(flow).choose(1, &[849; CORES]),
            |flow| balance(flow).choose(1, &[850; CORES]),
        );
        assert!((0..100).all(|flow| above(flow) == rps_place(flow, CORES)));
        assert!((0..100).any(|flow| below(flow) != rps_place(flow, CORES)));
        let always = PaperBalance {
            threshold_pct: 101,
            ..balance(7)
        };
        assert_eq!(
            always.choose(1, &[1_000; CORES]),
            balance(7).choose(1, &CALM)
        );
    }
}
