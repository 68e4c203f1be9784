// SPDX-License-Identifier: GPL-2.0

//! The disorder against the size of a micro-flow.

use std::collections::BTreeMap;

use anyhow::Result;
use plotters::prelude::*;

use super::canvas::{self, Axes, COLOURS, LEGEND};
use super::Picture;
use crate::bench::tables::figure::{label, Figure};
use xtask::results::row::Row;

/// Draws the figure; `None` when no case has a batch size and packets.
pub(super) fn draw(figure: &Figure<'_>) -> Result<Option<Picture>> {
    let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for row in figure.cases.iter().flat_map(|case| &case.rows) {
        if let Some(point) = point(row) {
            let name = format!("{} {}", row.proto, label(row));
            series.entry(name).or_default().push(point);
        }
    }
    if series.is_empty() {
        return Ok(None);
    }
    let points = || series.values().flatten();
    let last = points().map(|point| point.0).fold(1.0, f64::max).ceil();
    let y_max = canvas::end(points().map(|point| point.1));
    let names: Vec<(String, RGBColor)> = series
        .keys()
        .cloned()
        .zip(COLOURS.into_iter().cycle())
        .collect();
    let svg = canvas::svg(560 + LEGEND, |root| {
        let mut chart = canvas::axes(
            root,
            &Axes {
                title: "Packets before their turn against batch size",
                below: Some(("packets in a micro-flow", |power| {
                    format!("{:.0}", power.exp2())
                })),
                beside: "before their turn, per 1000 delivered",
                x_max: last,
                y_max,
            },
        )?;
        for (points, (_, colour)) in series.values().zip(&names) {
            let line = points.iter().copied();
            chart.draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))?;
            chart.draw_series(line.map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        canvas::legend(root, &names)?;
        Ok(())
    })?;
    Ok(Some(Picture {
        name: "order-disturbance".to_owned(),
        svg,
    }))
}

/// Returns the batch size as a power of two, and packets that had to wait for their turn per 1000 delivered.
fn point(row: &Row) -> Option<(f64, f64)> {
    let early = row.early?;
    (row.batch_pkts > 0 && row.packets > 0).then(|| {
        let part = early as f64 / row.packets as f64;
        (f64::from(row.batch_pkts).log2(), part * 1000.0)
    })
}
