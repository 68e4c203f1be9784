// SPDX-License-Identifier: GPL-2.0

//! The values of different knobs that go together.

use crate::algo::knobs::{write_words, Build, Knobs, Layout, Mode, Scaling};
use core::fmt;

/// The values that go together with a mode and a layout.
#[derive(Debug)]
pub struct Combination {
    /// The mode.
    pub mode: Mode,
    /// The layout.
    pub layout: Layout,
    /// The values of `scaling` that go with both.
    pub scaling: &'static [Scaling],
    /// The values of `build` that go with both.
    pub build: &'static [Build],
}

/// The valid combinations; every other is refused. In the modes of FALCON the mode itself says where flows leave the NIC's core,
/// and that core builds the packets. A lane with two CPUs has nothing for the first of them where the NIC's core builds.
pub const COMBINATIONS: [Combination; 4] = [
    Combination {
        mode: Mode::Mflow,
        layout: Layout::Lane,
        scaling: Scaling::ALL,
        build: Build::ALL,
    },
    Combination {
        mode: Mode::Mflow,
        layout: Layout::LaneStage,
        scaling: &[Scaling::Path],
        build: &[Build::Auto, Build::Lane],
    },
    Combination {
        mode: Mode::FalconDev,
        layout: Layout::Lane,
        scaling: &[Scaling::Path],
        build: &[Build::Auto, Build::Nic],
    },
    Combination {
        mode: Mode::FalconFunc,
        layout: Layout::Lane,
        scaling: &[Scaling::Path],
        build: &[Build::Auto, Build::Nic],
    },
];

/// The reason why knobs do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// No row of [`COMBINATIONS`] has this mode and this layout.
    Layout(Mode),
    /// The row of this mode and this layout has other values.
    Values(Mode, Layout),
    /// The layout takes CPUs in pairs.
    OddCpus,
    /// The load controller does not know CPUs that build.
    LoadControl,
}

impl Misfit {
    /// Returns the reason why the knobs do not go together, if there is one.
    pub(super) fn of(knobs: &Knobs) -> Option<Self> {
        let &Knobs { mode, layout, .. } = knobs;
        let row = |with: &&Combination| (with.mode, with.layout) == (mode, layout);
        let Some(with) = COMBINATIONS.iter().find(row) else {
            return Some(Self::Layout(mode));
        };
        if !with.scaling.contains(&knobs.scaling) || !with.build.contains(&knobs.build) {
            return Some(Self::Values(mode, layout));
        }
        match layout {
            Layout::Lane => None,
            // What is chosen here is chosen for the layout.
            Layout::LaneStage if !knobs.auto_cpus && knobs.cpus.len() % 2 == 1 => {
                Some(Self::OddCpus)
            }
            Layout::LaneStage if knobs.load_threshold_pct > 0 => Some(Self::LoadControl),
            Layout::LaneStage => None,
        }
    }
}

impl fmt::Display for Misfit {
    /// Prints as the sentence that says what goes together.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = Layout::LaneStage.name();
        match *self {
            Self::Layout(mode) => {
                write!(f, "mode {} goes with layout ", mode.name())?;
                let of_mode = COMBINATIONS.iter().filter(move |with| with.mode == mode);
                write_words(f, of_mode.map(|with| with.layout.name()))?;
                f.write_str(" only")
            }
            Self::Values(mode, layout) => {
                write!(f, "mode {} ", mode.name())?;
                if layout != Layout::DEFAULT {
                    write!(f, "with layout {} ", layout.name())?;
                }
                f.write_str("goes with")?;
                for with in &COMBINATIONS {
                    if (with.mode, with.layout) == (mode, layout) {
                        f.write_str(" scaling ")?;
                        write_words(f, with.scaling.iter().map(|value| value.name()))?;
                        f.write_str(" and build ")?;
                        write_words(f, with.build.iter().map(|value| value.name()))?;
                    }
                }
                f.write_str(" only")
            }
            Self::OddCpus => write!(f, "layout {pairs} goes with an even number of cpus only"),
            Self::LoadControl => write!(f, "layout {pairs} goes with load_threshold_pct 0 only"),
        }
    }
}
