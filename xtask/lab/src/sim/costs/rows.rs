// SPDX-License-Identifier: GPL-2.0

//! The costs of each stage, read from benchmark rows, and the choice of the row of a mode that calibrates the model.

use mflow_algo::algo::limits::MAX_LANES;
use xtask::results::row::Row;

/// The mode that all others are compared with.
pub(crate) const VANILLA: &str = "vanilla";
pub(crate) const NATIVE: &str = "native";
pub(crate) const RPS: &str = "rps";
/// With stages behind the NIC's GRO, and before it.
pub(crate) const FALCON_DEV: &str = "falcon-dev";
pub(crate) const FALCON_FUNC: &str = "falcon-func";
pub(crate) const MFLOW: &str = "mflow";
/// A core with less than this share of another core's work had time to spare.
const CLEARLY_LESS: f64 = 0.9;

/// Instructions per wire packet of each stage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Costs {
    pub(crate) nic: f64,
    /// The part of it that lanes do instead where they have less to do (`build` `auto`).
    pub(crate) movable: f64,
    pub(crate) path: Path,
    pub(crate) app: f64,
}

/// The stages between the NIC core and the reader.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Path {
    /// Cores that every packet passes; none with the vanilla stack.
    ///
    /// Flows may have been spread over such cores: a chain of the same costs is limited by the same core.
    Hops(Vec<f64>),
    /// Lanes that share the packets; the cost of a packet on its lane.
    Lanes(f64),
}

/// A row's cores by role.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    /// Of several cores with a role, the one with the most sets the pace.
    pub(crate) nic: f64,
    pub(crate) app: f64,
    /// Each lane's instructions per packet of the whole flow.
    pub(crate) lanes: Vec<f64>,
    /// True if one core is the NIC's and one the application's: all packets go through both.
    pub(crate) is_one_path: bool,
}

/// The load of the NIC core, compared with that of the busiest lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NicCore {
    /// It only dispatched.
    ToSpare,
    /// It was as busy as the lanes: it may have carried batches itself.
    AsBusy,
    /// Busier than the lanes, which had room therefore.
    Busier,
}

impl Costs {
    /// Returns the cost of a packet on the NIC's core and on its lane, where the two share the work that either can do.
    pub(crate) fn shared_out(&self, lane: f64, lanes: usize) -> (f64, f64) {
        // CAST: a few lanes.
        let even = (self.nic + lane) / (lanes as f64 + 1.0);
        let moved = (self.nic - even).clamp(0.0, self.movable);
        (self.nic - moved, lane + moved)
    }

    /// Returns the cost of a packet between the NIC's core and the reader.
    pub(crate) fn behind_nic(&self) -> f64 {
        match &self.path {
            Path::Hops(hops) => hops.iter().sum(),
            Path::Lanes(lane) => *lane,
        }
    }
}

impl Measured {
    /// Reads a row; the error says why the model cannot use it.
    pub(crate) fn of(row: &Row) -> Result<Self, String> {
        let Some(insn) = &row.insn_per_packet else {
            return Err(row
                .note
                .clone()
                .unwrap_or_else(|| "not measured".to_owned()));
        };
        let role = |role: &'static str| {
            insn.by_cpu
                .iter()
                .filter(move |core| core.role == role)
                .map(|core| core.insn_per_packet)
        };
        let most = |name: &'static str| {
            role(name)
                .reduce(f64::max)
                .ok_or_else(|| format!("no core has the role `{name}`"))
        };
        let measured = Self {
            nic: most("nic")?,
            app: most("app")?,
            // Flows may not have come to every core that RPS could choose.
            lanes: role("lane").filter(|insn| *insn > 0.0).collect(),
            is_one_path: role("nic").count() == 1 && role("app").count() == 1,
        };
        if row.mode == MFLOW && measured.lanes.is_empty() {
            return Err("no core with the role `lane` did anything".to_owned());
        }
        if row.mode == MFLOW && measured.lanes.len() > MAX_LANES {
            return Err(format!("the module has {MAX_LANES} lanes at most"));
        }
        if measured.nic > 0.0 && measured.app > 0.0 {
            Ok(measured)
        } else {
            Err("the NIC core or the application core did nothing".to_owned())
        }
    }

    /// Returns the costs of the stages as this row shows them.
    pub(crate) fn costs(&self, mode: &str) -> Costs {
        Costs {
            nic: self.nic,
            movable: 0.0,
            path: if mode == MFLOW {
                // Each lane carries its share of the packets only.
                Path::Lanes(self.lanes.iter().sum())
            } else {
                Path::Hops(self.lanes.clone())
            },
            app: self.app,
        }
    }

    pub(crate) fn nic_core(&self) -> NicCore {
        let lane = self.busiest_lane();
        if self.nic < CLEARLY_LESS * lane {
            NicCore::ToSpare
        } else if lane < CLEARLY_LESS * self.nic {
            NicCore::Busier
        } else {
            NicCore::AsBusy
        }
    }

    fn busiest_lane(&self) -> f64 {
        self.lanes.iter().copied().fold(0.0, f64::max)
    }

    /// Returns whether the costs of NIC core and lanes can be read off the row. The figure of a NIC core that carries batches
    /// includes lanes' work, and behind a full socket all figures include the work for lost packets.
    pub(crate) fn is_direct(&self) -> bool {
        let kernel = self.nic.max(self.busiest_lane());
        self.nic_core() != NicCore::AsBusy && self.app < kernel
    }
}

/// Chooses the row that mflow's costs are taken from, out of those of one case and one way to split: one that can be
/// read off, saturated, near the usual batch size, with the fewest lanes; in this order.
pub(crate) fn calibrating<'r, 'a>(
    rows: &'r [(&'a Row, Measured)],
    usual_batch_pkts: u32,
) -> Option<&'r (&'a Row, Measured)> {
    rows.iter().min_by_key(|(row, measured)| {
        (
            !measured.is_direct(),
            row.saturated != Some(true),
            row.batch_pkts.abs_diff(usual_batch_pkts),
            row.lanes,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::costs::fixture::row;

    fn pair(row: &Row) -> (&Row, Measured) {
        (row, Measured::of(row).expect("a good row"))
    }

    #[test]
    fn a_lane_costs_what_all_lanes_do() {
        let row = row(MFLOW, 1_000.0, &[2_000.0, 2_100.0], 900.0);
        let costs = Measured::of(&row).expect("a good row").costs(MFLOW);
        assert_eq!(costs.path, Path::Lanes(4_100.0));
        let row = self::row("rps", 3_000.0, &[2_000.0], 900.0);
        let costs = Measured::of(&row).expect("a good row").costs("rps");
        assert_eq!(
            (costs.nic, costs.path),
            (3_000.0, Path::Hops(vec![2_000.0]))
        );
    }

    #[test]
    fn lanes_with_little_to_do_take_work_over() {
        let costs = Costs {
            nic: 1_400.0,
            movable: 700.0,
            path: Path::Lanes(4_600.0),
            app: 900.0,
        };
        assert_eq!(costs.shared_out(4_600.0, 2), (1_400.0, 4_600.0));
        assert_eq!(costs.shared_out(4_600.0, 4), (1_200.0, 4_800.0));
        assert_eq!(costs.shared_out(4_600.0, 16), (700.0, 5_300.0));
    }

    #[test]
    fn unusable_rows_say_why() {
        let mut row = row(MFLOW, 1_000.0, &[], 900.0);
        assert!(Measured::of(&row).is_err_and(|why| why.contains("`lane`")));
        let crowd = self::row(MFLOW, 1_000.0, &[900.0; MAX_LANES + 1], 900.0);
        assert!(Measured::of(&crowd).is_err_and(|why| why.contains("16 lanes at most")));
        row.insn_per_packet = None;
        row.note = Some("not yet".to_owned());
        assert_eq!(Measured::of(&row), Err("not yet".to_owned()));
    }

    #[test]
    fn the_fewest_lanes_that_can_be_read_off_calibrate() {
        let helped = row(MFLOW, 4_000.0, &[4_000.0], 900.0);
        let two = row(MFLOW, 1_000.0, &[3_000.0, 3_000.0], 900.0);
        let four = row(MFLOW, 1_000.0, &[1_500.0; 4], 900.0);
        let rows = [pair(&four), pair(&helped), pair(&two)];
        let (chosen, measured) = calibrating(&rows, 256).expect("a row");
        let costs = measured.costs(MFLOW);
        assert_eq!(chosen, &&two);
        assert_eq!((costs.nic, costs.path), (1_000.0, Path::Lanes(6_000.0)));
        assert_eq!(pair(&helped).1.nic_core(), NicCore::AsBusy);
        let (chosen, measured) = calibrating(&rows[1..2], 256).expect("a row");
        assert_eq!(chosen, &&helped);
        assert!(!measured.is_direct());
    }

    #[test]
    fn saturated_rows_and_the_usual_batch_come_first() {
        let mut idle = row(MFLOW, 1_000.0, &[6_000.0], 900.0);
        idle.saturated = Some(false);
        let mut small = row(MFLOW, 1_000.0, &[6_000.0], 900.0);
        small.batch_pkts = 16;
        let two = row(MFLOW, 1_000.0, &[3_000.0, 3_000.0], 900.0);
        let rows = [pair(&idle), pair(&small), pair(&two)];
        assert_eq!(calibrating(&rows, 256).expect("a row").0, &two);
    }
}
