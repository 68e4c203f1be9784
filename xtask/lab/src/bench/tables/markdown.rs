// SPDX-License-Identifier: GPL-2.0

//! Results as one Markdown document, with the plots beside the tables.

use std::fs;
use std::path::{self, Component, Path, PathBuf};

use anyhow::{Context as _, Result};

use super::figure::group;
use super::figure_text::{blocks, Block};
use super::overview;
use crate::bench::measurement::row::Row;
use crate::bench::plot::Plot;
use crate::bench::suites::published;
use crate::sim::predictions::modelled::Modelled;

#[derive(Clone, Debug)]
pub(crate) struct Provenance {
    /// As git describes it.
    pub(crate) commit: String,
    pub(crate) kernel: String,
    pub(crate) qemu: String,
}

impl Default for Provenance {
    fn default() -> Self {
        let unknown = || "not recorded".to_owned();
        Self {
            commit: unknown(),
            kernel: unknown(),
            qemu: unknown(),
        }
    }
}

const ABOUT: &str = "\
The primary figure is the number of instructions per delivered wire packet on the busiest core, kernel and user space, with the
application's core among them: the core that saturates first sets a flow's throughput. It is counted in an emulated machine. Papers
report throughput and latency on hardware, so their ratios are beside ours, not in their place. Of the windows of a case the median
is shown; the spread is (max - min) / median.

Each instruction counts the same. So a checksum, which adds up one word after the other, counts in full, and a copy by words counts
one instruction a word, however long it waits for memory: what avoids copies gains less here than on hardware, what avoids checksums
more. A packet that changes cores misses the caches on hardware; here that costs nothing, for RPS as for mflow.
";

const MODELLED: &str = "Modelled: many containers on few cores (FALCON Figs. 14 to 16)";
const PUBLISHED: &str = "All figures of the papers";

/// Writes the report to `file`; plots are linked by a path relative to it.
pub(crate) fn write(
    file: &Path,
    rows: &[Row],
    provenance: &Provenance,
    modelled: Option<&Modelled>,
    plots: &[Plot],
) -> Result<()> {
    let file = path::absolute(file).with_context(|| format!("no path: {}", file.display()))?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut linked = plots.to_vec();
    for plot in &mut linked {
        let target = path::absolute(&plot.path)
            .with_context(|| format!("no path: {}", plot.path.display()))?;
        plot.path = relative(&target, folder);
    }
    fs::write(&file, markdown(rows, provenance, modelled, &linked))
        .with_context(|| format!("cannot write {}", file.display()))
}

fn markdown(
    rows: &[Row],
    provenance: &Provenance,
    modelled: Option<&Modelled>,
    plots: &[Plot],
) -> String {
    let mut text = format!(
        "# Benchmark\n\n| | |\n|---|---|\n| mflow | {} |\n| kernel | {} |\n| QEMU | {} |\n\n{ABOUT}",
        provenance.commit, provenance.kernel, provenance.qemu
    );
    if rows.is_empty() {
        text += "\nNo case was measured.\n";
    }
    let overview = overview::grid(rows);
    if !overview.is_empty() {
        text += &format!("\n## {}\n\n{}", overview::TITLE, overview.markdown());
    }
    for figure in group(rows) {
        text += &format!("\n## {}\n", figure.kind.title());
        // Plots go between the table that they show and everything else.
        let mut pictures: Vec<&Plot> = plots
            .iter()
            .filter(|plot| plot.kind == Some(figure.kind))
            .collect();
        for block in blocks(&figure) {
            match block {
                Block::Grid { title, grid } => {
                    text += &format!("\n### {title}\n\n{}", grid.markdown());
                }
                Block::Notes(notes) => {
                    text.push('\n');
                    for note in notes {
                        text += &format!("* {note}\n");
                    }
                    pictures.drain(..).for_each(|plot| text += &link(plot));
                }
            }
        }
    }
    if let Some(modelled) = modelled {
        text += &format!("\n## {MODELLED}\n\n```\n{}\n```\n", modelled.text.trim());
        let pictures = plots.iter().filter(|plot| plot.kind.is_none());
        pictures.for_each(|plot| text += &link(plot));
    }
    text += &format!(
        "\n## {PUBLISHED}\n\n{}",
        published::grid(rows, modelled.is_some()).markdown()
    );
    text
}

fn link(plot: &Plot) -> String {
    format!("\n![{}](<{}>)\n", plot.caption, plot.path.display())
}

/// Returns `target` as seen from `folder`; both are absolute.
fn relative(target: &Path, folder: &Path) -> PathBuf {
    let parts = |path: &Path| -> Vec<PathBuf> {
        path.components()
            .filter(|part| !matches!(part, Component::CurDir))
            .map(|part| PathBuf::from(part.as_os_str()))
            .collect()
    };
    let (target, folder) = (parts(target), parts(folder));
    let common = target
        .iter()
        .zip(&folder)
        .take_while(|(one, other)| one == other)
        .count();
    let up = folder.iter().skip(common).map(|_| PathBuf::from(".."));
    up.chain(target.iter().skip(common).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measurement::fixture;
    use crate::bench::plot;

    #[test]
    fn the_report_names_its_source_and_links_its_plots() {
        let folder = tempfile::tempdir().expect("a folder");
        let rows = fixture::rows();
        let plots = plot::write(&rows, None, &folder.path().join("plots")).expect("plots");
        let file = folder.path().join("text/report.md");
        let provenance = Provenance {
            commit: "made-up-commit".to_owned(),
            ..Provenance::default()
        };
        write(&file, &rows, &provenance, None, &plots).expect("a report");
        let text = fs::read_to_string(&file).expect("written");
        assert!(text.contains("| mflow | made-up-commit |"), "{text}");
        assert!(text.contains("| kernel | not recorded |"), "{text}");
        assert!(text.contains("falcon-func"), "{text}");
        assert!(text.contains("FALCON Fig. 19b"), "{text}");
        let mut links = 0;
        for (_, rest) in text
            .match_indices("](<")
            .map(|(at, _)| text.split_at(at + 3))
        {
            let path = rest.split('>').next().expect("a link");
            assert!(path.starts_with("../plots/"), "{path}");
            assert!(folder.path().join("text").join(path).exists(), "{path}");
            links += 1;
        }
        assert_eq!(links, plots.len());
        assert!(links > 0);
    }

    #[test]
    fn nothing_measured_is_said() {
        let text = markdown(&[], &Provenance::default(), None, &[]);
        assert!(text.contains("No case was measured."), "{text}");
    }

    #[test]
    fn paths_are_seen_from_the_report() {
        let see = |target: &str, folder: &str| relative(Path::new(target), Path::new(folder));
        assert_eq!(see("/a/b/c.svg", "/a/b"), Path::new("c.svg"));
        assert_eq!(see("/a/x/c.svg", "/a/b"), Path::new("../x/c.svg"));
        assert_eq!(see("/c.svg", "/a/b"), Path::new("../../c.svg"));
    }
}
