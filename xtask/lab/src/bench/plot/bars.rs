// SPDX-License-Identifier: GPL-2.0

//! The work of each core per packet, the cores of a mode side by side: the tallest bar sets the flow's throughput.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::VPos;

use super::canvas::{self, Area, Axes, Chart, COLOURS, INK, LEGEND};
use super::Picture;
use crate::bench::tables::figure::{label, Case};
use xtask::results::row::{Core, Instructions, Row};

/// Width of a bar, and of the gap between two modes, in pixels.
const BAR: u32 = 30;

/// A mode has at least this many bars' room, for its name.
const BARS_MIN: usize = 3;

pub(super) fn draw(case: &Case<'_>) -> Result<Option<Picture>> {
    let drawable =
        |row: &&&Row| row.insn_per_packet.as_ref().is_some_and(finite) && !cores(row).is_empty();
    if case.rows.iter().filter(drawable).count() == 0 {
        return Ok(None);
    }
    let cores: Vec<&Core> = case.rows.iter().flat_map(|row| cores(row)).collect();
    let colours = colours(&cores);
    let y_max = canvas::end(
        case.rows
            .iter()
            .filter_map(|row| row.insn_per_packet.as_ref())
            .flat_map(|insn| [insn.busiest, range(insn)[1]])
            .chain(cores.iter().map(|core| core.insn_per_packet)),
    );
    let bars: usize = case.rows.iter().map(|row| room(row) + 1).sum();
    let width = (bars as u32 * BAR + 90).max(360) + LEGEND;
    let svg = canvas::svg(width, |root| {
        let mut chart = canvas::axes(
            root,
            &Axes {
                title: case.name,
                below: None,
                beside: "instructions per delivered wire packet",
                x_max: bars as f64,
                y_max,
            },
        )?;
        let mut left = 0.5;
        for row in &case.rows {
            let middle = left + room(row) as f64 / 2.0;
            mode(root, &mut chart, row, (left, middle), &colours)?;
            left += (room(row) + 1) as f64;
        }
        canvas::legend(root, &colours)?;
        if case
            .rows
            .iter()
            .filter(drawable)
            .any(|row| row.saturated == Some(false))
        {
            let (x, y) = (
                i32::try_from(width - LEGEND)? + 14,
                60 + 20 * colours.len() as i32,
            );
            canvas::beside(root, "* not saturated", (x, y))?;
        }
        Ok(())
    })?;
    Ok(Some(Picture {
        name: case.name.to_owned(),
        svg,
    }))
}

/// Draws the bars of one mode, its name below.
fn mode(
    root: &Area<'_>,
    chart: &mut Chart<'_, '_>,
    row: &Row,
    (left, middle): (f64, f64),
    colours: &[(String, RGBColor)],
) -> Result<()> {
    let (x, y) = chart.backend_coord(&(middle, 0.0));
    canvas::centred(root, &label(row), (x, y + 8), 14, VPos::Top)?;
    let Some(insn) = row.insn_per_packet.as_ref().filter(|insn| finite(insn)) else {
        return canvas::centred(root, "not available", (x, y - 8), 13, VPos::Bottom);
    };
    let first = left + (room(row) - cores(row).len()) as f64 / 2.0;
    let mut busiest: Option<(f64, f64)> = None;
    for (core, place) in cores(row).into_iter().zip(0..) {
        let start = first + f64::from(place);
        let height = core.insn_per_packet;
        let colour = colours
            .iter()
            .find(|(role, _)| *role == core.role)
            .map_or(INK, |entry| entry.1);
        let corners = [(start + 0.06, 0.0), (start + 0.94, height)];
        chart.draw_series([Rectangle::new(corners, colour.filled())])?;
        if busiest.is_none_or(|(_, most)| height > most) {
            busiest = Some((start + 0.5, height));
        }
    }
    let (place, _) = busiest.unwrap_or((middle, 0.0));
    let [min, max] = range(insn);
    let range = [(place, min), (place, max)];
    chart.draw_series([PathElement::new(range, INK.stroke_width(2))])?;
    let (x, y) = chart.backend_coord(&(place, max.max(insn.busiest)));
    let mark = if row.saturated == Some(false) {
        "*"
    } else {
        ""
    };
    let text = format!("{:.0}{mark}", insn.busiest);
    canvas::centred(root, &text, (x, y - 3), 14, VPos::Bottom)
}

fn cores(row: &Row) -> Vec<&Core> {
    row.insn_per_packet
        .iter()
        .flat_map(|insn| &insn.by_cpu)
        .filter(|core| core.insn_per_packet.is_finite())
        .collect()
}

fn room(row: &Row) -> usize {
    cores(row).len().max(BARS_MIN)
}

fn finite(insn: &Instructions) -> bool {
    insn.busiest.is_finite() && range(insn).iter().all(|value| value.is_finite())
}

/// Returns the least and the most of all windows, as far as they are known.
fn range(insn: &Instructions) -> [f64; 2] {
    [insn.min, insn.max].map(|value| value.unwrap_or(insn.busiest))
}

/// Returns a colour for every role, in the order in which they appear.
fn colours(cores: &[&Core]) -> Vec<(String, RGBColor)> {
    let mut roles: Vec<&str> = Vec::new();
    for core in cores {
        if !roles.contains(&core.role.as_str()) {
            roles.push(&core.role);
        }
    }
    // The same role has the same colour in every picture.
    let usual = ["nic", "lane", "app"];
    roles.sort_by_key(|role| {
        usual
            .iter()
            .position(|known| known == role)
            .unwrap_or(usual.len())
    });
    let mut others = COLOURS.iter().skip(usual.len()).cycle();
    roles
        .into_iter()
        .map(|role| {
            let known = usual.iter().position(|known| *known == role);
            let colour = known
                .and_then(|place| COLOURS.get(place))
                .or_else(|| others.next());
            (role.to_owned(), colour.copied().unwrap_or(INK))
        })
        .collect()
}
