// SPDX-License-Identifier: GPL-2.0

//! The rows of a screen, shared out to what is shown on it.

/// Rows of each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The rows of cores.
    pub cores: usize,
    /// The rows of lanes.
    pub lanes: usize,
    /// The rows of flows.
    pub flows: usize,
}

/// Returns the rows of each part out of `height`, for parts that need so many. Each has a third, and what the others do not need: lanes
/// first, which are few, and cores last, which may be very many. A row is left for the line that says what there is no room for.
pub fn share(height: usize, need: &Parts) -> Parts {
    let all = shared(height, need);
    if all.cores < need.cores || all.lanes < need.lanes {
        shared(height.saturating_sub(1), need)
    } else {
        all
    }
}

fn shared(height: usize, need: &Parts) -> Parts {
    let third = height / 3;
    let mut rows = Parts {
        cores: need.cores.min(third),
        lanes: need.lanes.min(third),
        flows: need.flows.min(third),
    };
    let mut spare = height - rows.cores - rows.lanes - rows.flows;
    for (has, needs) in [
        (&mut rows.lanes, need.lanes),
        (&mut rows.flows, need.flows),
        (&mut rows.cores, need.cores),
    ] {
        let more = spare.min(needs - *has);
        *has += more;
        spare -= more;
    }
    rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(cores: usize, lanes: usize, flows: usize) -> Parts {
        Parts {
            cores,
            lanes,
            flows,
        }
    }

    #[test]
    fn what_one_part_does_not_need_others_have() {
        assert_eq!(share(16, &parts(2, 9, 4)), parts(2, 9, 4));
        assert_eq!(share(16, &parts(9, 9, 4)), parts(5, 6, 4));
        assert_eq!(share(16, &parts(65, 0, 4)), parts(11, 0, 4));
        assert_eq!(share(16, &parts(65, 17, 90)), parts(5, 5, 5));
    }

    proptest! {
        #[test]
        fn all_rows_are_used_and_each_part_has_its_third(
            height in 0..200_usize, cores in 0..200_usize, lanes in 0..20_usize, flows in 0..200_usize,
        ) {
            let need = parts(cores, lanes, flows);
            let rows = share(height, &need);
            let is_short = rows.cores < cores || rows.lanes < lanes;
            let usable = height.saturating_sub(usize::from(is_short));
            prop_assert_eq!(rows.cores + rows.lanes + rows.flows, usable.min(cores + lanes + flows));
            for (has, needs) in [(rows.cores, cores), (rows.lanes, lanes), (rows.flows, flows)] {
                prop_assert!(has <= needs && has >= needs.min(usable / 3));
            }
        }
    }
}
