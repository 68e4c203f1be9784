// SPDX-License-Identifier: GPL-2.0

//! The results of the simulator for the measured costs, as lines.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::VPos;

use super::canvas::{self, Axes, COLOURS, LEGEND};
use super::Picture;
use crate::sim::predictions::modelled::Chart;

const WIDTH: u32 = 560 + LEGEND;

pub(super) fn draw(chart: &Chart) -> Result<Picture> {
    // CAST: a few places.
    let at = |place: usize| place as f64 + 0.5;
    let values = chart.series.iter().flat_map(|(_, values)| values.iter());
    let y_max = canvas::end(values.copied());
    let names: Vec<(String, RGBColor)> = chart
        .series
        .iter()
        .map(|(name, _)| name.clone())
        .zip(COLOURS.into_iter().cycle())
        .collect();
    let svg = canvas::svg(WIDTH, |root| {
        let mut axes = canvas::axes(
            root,
            &Axes {
                title: chart.title,
                below: None,
                beside: chart.beside,
                x_max: chart.places.len().max(1) as f64,
                y_max,
            },
        )?;
        for (number, place) in chart.places.iter().enumerate() {
            let (x, y) = axes.backend_coord(&(at(number), 0.0));
            canvas::centred(root, place, (x, y + 8), 14, VPos::Top)?;
        }
        let (x, y) = axes.backend_coord(&(chart.places.len() as f64 / 2.0, 0.0));
        canvas::centred(root, chart.below, (x, y + 26), 15, VPos::Top)?;
        for ((_, values), (_, colour)) in chart.series.iter().zip(&names) {
            let line = values
                .iter()
                .enumerate()
                .filter(|(_, value)| value.is_finite())
                .map(|(number, value)| (at(number), *value));
            axes.draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))?;
            axes.draw_series(line.map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        canvas::legend(root, &names)
    })?;
    Ok(Picture {
        name: chart.name.to_owned(),
        svg,
    })
}
