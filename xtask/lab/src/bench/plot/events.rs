// SPDX-License-Identifier: GPL-2.0

//! The number of interrupts of the cores that receive, by kind and mode.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::VPos;

use super::canvas::{self, Axes, COLOURS, LEGEND};
use super::Picture;
use crate::bench::tables::events::{sums, KINDS};
use crate::bench::tables::figure::{label, Case};
use xtask::results::row::Row;

/// Width of a bar, in pixels.
const BAR: u32 = 22;

/// Draws one case; `None` when nothing was counted.
pub(super) fn draw(case: &Case<'_>) -> Result<Option<Picture>> {
    let counted: Vec<(&Row, [f64; KINDS.len()])> = case
        .rows
        .iter()
        .filter_map(|row| Some((*row, sums(row)?)))
        .collect();
    if counted.is_empty() {
        return Ok(None);
    }
    let y_max = canvas::end(counted.iter().flat_map(|(_, sums)| *sums));
    let bars = counted.len() * (KINDS.len() + 1);
    // CAST: a few dozen bars.
    let width = (bars as u32 * BAR + 90).max(420) + LEGEND;
    let title = format!("{}: interrupts and softirqs", case.name);
    let svg = canvas::svg(width, |root| {
        let mut chart = canvas::axes(
            root,
            &Axes {
                title: &title,
                below: None,
                beside: "per 1000 packets",
                x_max: bars as f64,
                y_max,
            },
        )?;
        let mut left = 0.5;
        for (row, sums) in &counted {
            let (x, y) = chart.backend_coord(&(left + KINDS.len() as f64 / 2.0, 0.0));
            canvas::centred(root, &label(row), (x, y + 8), 14, VPos::Top)?;
            for (count, colour) in sums.iter().zip(COLOURS) {
                let height = Some(*count)
                    .filter(|count| count.is_finite())
                    .unwrap_or(0.0);
                let corners = [(left + 0.06, 0.0), (left + 0.94, height)];
                chart.draw_series([Rectangle::new(corners, colour.filled())])?;
                left += 1.0;
            }
            left += 1.0;
        }
        let entries: Vec<(String, RGBColor)> = KINDS
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .zip(COLOURS)
            .collect();
        canvas::legend(root, &entries)
    })?;
    Ok(Some(Picture {
        name: format!("{}-interrupts", case.name),
        svg,
    }))
}
