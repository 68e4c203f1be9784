// SPDX-License-Identifier: GPL-2.0

//! The speed-up of the busiest core: how many times less work it has than with the vanilla stack, and what the papers say about
//! throughput.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::VPos;

use super::canvas::{self, Axes, COLOURS, HEIGHT, INK, LEGEND};
use super::Picture;
use crate::bench::tables::figure::{label, Figure};
use xtask::results::row::Row;

/// Width of a bar, in pixels.
const BAR: u32 = 34;

/// Draws one figure; `None` when there is no speed-up to show.
pub(super) fn draw(figure: &Figure<'_>) -> Result<Option<Picture>> {
    let cases: Vec<(&str, Vec<&Row>)> = figure
        .cases
        .iter()
        .map(|case| (case.name, shown(&case.rows)))
        .filter(|(_, rows)| rows.iter().any(|row| ours(row).is_some()))
        .collect();
    if cases.is_empty() {
        return Ok(None);
    }
    let rows = || cases.iter().flat_map(|(_, rows)| rows.iter().copied());
    let colours = colours(rows());
    let y_max = canvas::end(rows().flat_map(|row| [ours(row), paper(row)]).flatten());
    let bars: usize = cases.iter().map(|(_, rows)| rows.len() + 1).sum();
    let width = (bars as u32 * BAR + 90).max(420) + LEGEND;
    let svg = canvas::svg(width, |root| {
        let mut chart = canvas::axes(
            root,
            &Axes {
                title: "Speed-up over the vanilla overlay",
                below: None,
                beside: "times",
                x_max: bars as f64,
                y_max,
            },
        )?;
        let vanilla = [(0.0, 1.0), (bars as f64, 1.0)];
        let mut left = 0.5;
        for (name, rows) in &cases {
            let (x, y) = chart.backend_coord(&(left + rows.len() as f64 / 2.0, 0.0));
            canvas::centred(root, name, (x, y + 8), 14, VPos::Top)?;
            for row in rows {
                let colour = colours
                    .iter()
                    .find(|(mode, _)| *mode == label(row))
                    .map_or(INK, |entry| entry.1);
                if let Some(ours) = ours(row) {
                    let corners = [(left + 0.06, 0.0), (left + 0.94, ours)];
                    chart.draw_series([Rectangle::new(corners, colour.filled())])?;
                    let (x, y) = chart.backend_coord(&(left + 0.5, ours));
                    canvas::centred(root, &format!("{ours:.1}"), (x, y - 3), 13, VPos::Bottom)?;
                }
                if let Some(paper) = paper(row) {
                    chart.draw_series(mark(&(left + 0.5, paper)))?;
                }
                left += 1.0;
            }
            left += 1.0;
        }
        chart.draw_series([PathElement::new(vanilla, INK.stroke_width(1))])?;
        canvas::legend(root, &colours)?;
        let (x, y) = (
            i32::try_from(width - LEGEND)? + 20,
            (60 + 20 * colours.len() as i32).min(HEIGHT as i32 - 20),
        );
        for circle in mark(&(x, y)) {
            root.draw(&circle)?;
        }
        canvas::beside(root, "paper, throughput", (x + 12, y))
    })?;
    Ok(Some(Picture {
        name: format!("{}-speedup", figure.kind.slug()),
        svg,
    }))
}

/// Returns the mark of the paper's value: a ring that is readable on every colour and on white.
fn mark<C: Copy>(at: &C) -> [Circle<C, i32>; 2] {
    [
        Circle::new(*at, 5, WHITE.filled()),
        Circle::new(*at, 5, INK.stroke_width(2)),
    ]
}

/// Returns the rows that are shown: vanilla itself is the line at 1.
fn shown<'a>(rows: &[&'a Row]) -> Vec<&'a Row> {
    rows.iter()
        .copied()
        .filter(|row| row.mode != "vanilla" && (ours(row).is_some() || paper(row).is_some()))
        .collect()
}

fn ours(row: &Row) -> Option<f64> {
    row.speedup_vs_vanilla.filter(|value| value.is_finite())
}

fn paper(row: &Row) -> Option<f64> {
    row.paper
        .as_ref()
        .map(|paper| paper.speedup_vs_vanilla)
        .filter(|value| value.is_finite())
}

fn colours<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<(String, RGBColor)> {
    let mut modes: Vec<String> = Vec::new();
    for row in rows {
        if !modes.contains(&label(row)) {
            modes.push(label(row));
        }
    }
    modes.into_iter().zip(COLOURS.into_iter().cycle()).collect()
}
