// SPDX-License-Identifier: GPL-2.0

//! Results as SVG files, each of which shows one idea.

mod bars;
mod canvas;
mod events;
mod modelled;
mod order;
mod speedup;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::bench::suites::kind::Kind;
use crate::bench::tables::figure::{group, Figure};
use crate::sim::predictions::modelled::Modelled;
use xtask::results::row::Row;

struct Picture {
    name: String,
    svg: String,
}

/// Draws everything that can be drawn from the rows, and from what is modelled, into `folder`.
pub(crate) fn write(rows: &[Row], modelled: Option<&Modelled>, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut drawn = Vec::new();
    for figure in group(rows) {
        drawn.extend(pictures(&figure)?);
    }
    for chart in modelled.iter().flat_map(|modelled| &modelled.charts) {
        drawn.push(modelled::draw(chart)?);
    }
    for picture in drawn {
        let path = folder.join(file_name(&picture.name));
        fs::write(&path, picture.svg)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns a file's name for a case. The case's name comes from a file and must not lead out of the folder.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    name.chars().map(plain).collect::<String>() + ".svg"
}

fn pictures(figure: &Figure<'_>) -> Result<Vec<Picture>> {
    if figure.kind == Kind::Order {
        return Ok(order::draw(figure)?.into_iter().collect());
    }
    let mut pictures = Vec::new();
    // These are about something else.
    if !matches!(
        figure.kind,
        Kind::Overhead | Kind::Latency | Kind::Rates | Kind::Answers | Kind::Hike
    ) {
        pictures.extend(speedup::draw(figure)?);
    }
    for case in &figure.cases {
        pictures.extend(bars::draw(case)?);
        if figure.kind == Kind::Rates {
            pictures.extend(events::draw(case)?);
        }
    }
    Ok(pictures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measurement::fixture;

    /// Fails unless every tag is closed in its turn and nothing is left unescaped.
    fn check(svg: &str) {
        let mut open = Vec::new();
        let mut rest = svg;
        while let Some((text, tag)) = rest.split_once('<') {
            assert!(!text.contains('>'), "stray > in {text:?}");
            for (at, _) in text.match_indices('&') {
                let end = text[at..].find(';').expect("an entity ends");
                let entity = &text[at + 1..at + end];
                assert!(
                    ["lt", "gt", "amp", "quot", "apos"].contains(&entity),
                    "{entity}"
                );
            }
            let (tag, after) = tag.split_once('>').expect("a tag ends");
            rest = after;
            if tag.starts_with(['?', '!']) || tag.ends_with('/') {
                continue;
            }
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name.trim())),
                None => open.push(tag.split_whitespace().next().expect("a name")),
            }
        }
        assert!(open.is_empty(), "{open:?} left open");
        assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
    }

    fn all(rows: &[Row]) -> Vec<Picture> {
        group(rows)
            .iter()
            .flat_map(|figure| pictures(figure).expect("pictures"))
            .collect()
    }

    #[test]
    fn every_picture_is_well_formed_and_has_its_own_background() {
        let pictures = all(&fixture::rows());
        let names: Vec<&str> = pictures
            .iter()
            .map(|picture| picture.name.as_str())
            .collect();
        for name in [
            "udp-speedup",
            "udp-16",
            "order-disturbance",
            "overhead-udp-16",
        ] {
            assert!(names.contains(&name), "{names:?}");
        }
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "{names:?}");
        for picture in &pictures {
            check(&picture.svg);
            let first = picture.svg.find("<rect").expect("a background");
            assert!(picture.svg[first..]
                .lines()
                .next()
                .is_some_and(|line| line.contains("#FFFFFF")));
        }
    }

    #[test]
    fn interrupts_are_drawn_where_the_rate_is_the_same() {
        let pictures = all(&fixture::rates());
        let names: Vec<&str> = pictures
            .iter()
            .map(|picture| picture.name.as_str())
            .collect();
        assert_eq!(names, ["rate-udp-16-1000", "rate-udp-16-1000-interrupts"]);
        pictures.iter().for_each(|picture| check(&picture.svg));
        assert!(pictures[1].svg.contains("NET_RX"));
    }

    #[test]
    fn what_is_modelled_is_drawn() {
        // Made up; one line ends before the others, and one value is none.
        let chart = crate::sim::predictions::modelled::Chart {
            name: "made-up",
            title: "Made up",
            below: "places",
            beside: "values",
            places: vec!["<a>".to_owned(), "b".to_owned()],
            series: vec![
                ("long".to_owned(), vec![1.0, 2.0]),
                ("short".to_owned(), vec![f64::NAN]),
            ],
        };
        let picture = modelled::draw(&chart).expect("a picture");
        check(&picture.svg);
        assert!(picture.svg.contains("short") && picture.svg.contains("&lt;a&gt;"));
    }

    #[test]
    fn files_stay_in_their_folder() {
        assert_eq!(file_name("udp-16"), "udp-16.svg");
        assert_eq!(file_name("../x"), "---x.svg");
    }

    #[test]
    fn names_are_escaped() {
        let row = fixture::row("udp-16", "<&\"mode'>", 0);
        let pictures = all(&[fixture::with(row, &[("nic", 10.0)])]);
        assert!(!pictures.is_empty());
        pictures.iter().for_each(|picture| check(&picture.svg));
    }

    #[test]
    fn nothing_to_draw_is_no_error() {
        assert!(all(&[]).is_empty());
        assert!(all(&[fixture::row("udp-16", "falcon-dev", 0)]).is_empty());
        assert!(all(&[fixture::row("order-batch-16", "mflow", 2)]).is_empty());
    }

    #[test]
    fn what_is_not_finite_is_not_drawn() {
        let mut row = fixture::with(fixture::row("udp-16", "mflow", 2), &[("nic", f64::NAN)]);
        row.speedup_vs_vanilla = Some(f64::INFINITY);
        let good = fixture::with(fixture::row("udp-16", "vanilla", 0), &[("nic", 10.0)]);
        all(&[row, good])
            .iter()
            .for_each(|picture| check(&picture.svg));
    }

    #[test]
    fn a_mode_that_does_not_exist_is_said_not_to() {
        let pictures = all(&fixture::rows());
        let picture = pictures
            .iter()
            .find(|picture| picture.name == "udp-16")
            .expect("drawn");
        assert!(picture.svg.contains("not available"));
        assert!(picture.svg.contains("falcon-func"));
    }

    #[test]
    fn the_check_can_fail() {
        for bad in ["<a><b></a></b>", "<a>", "<a>&nope;</a>", "<a>x > y</a>"] {
            assert!(std::panic::catch_unwind(|| check(bad)).is_err(), "{bad}");
        }
    }
}
