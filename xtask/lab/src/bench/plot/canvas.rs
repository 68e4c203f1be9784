// SPDX-License-Identifier: GPL-2.0

//! The parts that all pictures share: the paper, the colours, the axes, the legend.

use anyhow::Result;
use plotters::coord::types::RangedCoordf64;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// An area with axes, both linear.
pub(super) type Chart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

pub(super) const HEIGHT: u32 = 420;

/// Width of the column of the legend, in pixels.
pub(super) const LEGEND: u32 = 150;

/// Ink for text and lines: the paper is always white.
pub(super) const INK: RGBColor = RGBColor(0x20, 0x20, 0x20);

/// Colours that are readable on white. The first eight, Okabe and Ito's with a darker yellow, can be distinguished by people with
/// colour blindness; the others are for a picture of all modes with both ways to split.
pub(super) const COLOURS: [RGBColor; 12] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xC8, 0xB9, 0x00),
    RGBColor(0x80, 0x80, 0x80),
    RGBColor(0x33, 0x22, 0x88),
    RGBColor(0x88, 0x22, 0x55),
    RGBColor(0x8B, 0x5A, 0x2B),
    RGBColor(0x66, 0xCC, 0x66),
];

/// Draws on white paper and returns the SVG file's text.
pub(super) fn svg(width: u32, draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut text = String::new();
    {
        // Without a background, text would be as dark as a dark page.
        let root = SVGBackend::with_string(&mut text, (width, HEIGHT)).into_drawing_area();
        root.fill(&WHITE)?;
        draw(&root)?;
        root.present()?;
    }
    Ok(text)
}

/// Writes the label of a value on the axis below.
pub(super) type Ticks = fn(&f64) -> String;

pub(super) struct Axes<'a> {
    pub(super) title: &'a str,
    /// The title and the labels of the axis below; `None` leaves both to the caller.
    pub(super) below: Option<(&'a str, Ticks)>,
    pub(super) beside: &'a str,
    /// The ends of the axes, which both start at 0.
    pub(super) x_max: f64,
    pub(super) y_max: f64,
}

pub(super) fn axes<'a, 'b>(root: &'a Area<'b>, axes: &Axes<'_>) -> Result<Chart<'a, 'b>> {
    let mut chart = ChartBuilder::on(root)
        .caption(axes.title, font(20))
        .margin(10)
        .margin_right(LEGEND)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..axes.x_max, 0.0..axes.y_max)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh()
        .max_light_lines(0)
        .bold_line_style(RGBColor(0xDD, 0xDD, 0xDD))
        .axis_style(INK)
        .label_style(font(14))
        .axis_desc_style(font(15))
        .y_label_formatter(&|value| {
            // Steps of a tenth are no exact numbers.
            format!("{}", (value * 1e6).round() / 1e6)
        })
        .y_desc(axes.beside);
    match &axes.below {
        Some((below, ticks)) => mesh
            .x_desc(*below)
            .x_labels(axes.x_max as usize + 1)
            .x_label_formatter(ticks)
            .draw()?,
        None => mesh.x_labels(0).draw()?,
    }
    Ok(chart)
}

pub(super) fn font(size: i32) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).color(&INK)
}

pub(super) fn centred(
    root: &Area<'_>,
    text: &str,
    at: (i32, i32),
    size: i32,
    vertical: VPos,
) -> Result<()> {
    let style = font(size).pos(Pos::new(HPos::Center, vertical));
    root.draw_text(text, &style, at)?;
    Ok(())
}

/// Lists what the colours stand for, at the right edge.
pub(super) fn legend(root: &Area<'_>, entries: &[(String, RGBColor)]) -> Result<()> {
    let left = width(root) - LEGEND as i32 + 14;
    for ((name, colour), line) in entries.iter().zip(0..) {
        let top = 50 + 20 * line;
        let square = [(left, top), (left + 12, top + 12)];
        root.draw(&Rectangle::new(square, colour.filled()))?;
        beside(root, name, (left + 18, top + 6))?;
    }
    Ok(())
}

pub(super) fn beside(root: &Area<'_>, text: &str, at: (i32, i32)) -> Result<()> {
    let style = font(14).pos(Pos::new(HPos::Left, VPos::Center));
    root.draw_text(text, &style, at)?;
    Ok(())
}

fn width(root: &Area<'_>) -> i32 {
    i32::try_from(root.dim_in_pixel().0).unwrap_or(i32::MAX)
}

/// Returns the end of an axis that starts at 0: some room above the largest value, and never an empty range.
pub(super) fn end(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if most > 0.0 {
        most * 1.12
    } else {
        1.0
    }
}
