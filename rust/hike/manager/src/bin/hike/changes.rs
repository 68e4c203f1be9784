// SPDX-License-Identifier: GPL-2.0

//! Commands that show, compare and change the configuration.

use std::fs;
use std::path::Path;

use anyhow::{bail, Context as _, Result};
use mflow_hike::XdpMode;
use mflow_hike_manager::configuration::file::{parse, word};
use mflow_hike_manager::configuration::objects::Kind;
use mflow_hike_manager::configuration::Configuration;
use mflow_hike_manager::options::{Chain, ChainWords, Cli};
use mflow_hike_manager::proto::Numbered as _;
use mflow_hike_manager::v1;

use crate::client::{connect, said, there};
use crate::output::{difference_lines, print, print_json, print_line, table, to_json, warn};

pub(crate) async fn apply(cli: &Cli, file: &Path) -> Result<()> {
    let configuration = Some(read(file)?);
    let request = v1::ApplyRequest {
        configuration,
        revision: None,
    };
    let answer = connect(&cli.socket).await?.apply(request).await;
    applied(cli, &said(answer)?)
}

fn applied(cli: &Cli, answer: &v1::ApplyResponse) -> Result<()> {
    if cli.json {
        return print_json(&to_json(answer)?);
    }
    for line in difference_lines(&answer.changes) {
        print_line(line)?;
    }
    for warning in &answer.warnings {
        warn(warning);
    }
    let revision = answer.revision;
    match answer.changes.len() {
        0 => print_line(format_args!("nothing differs, revision {revision} stays")),
        count => print_line(format_args!("{count} changed, this is revision {revision}")),
    }
}

/// Returns whether something differs.
pub(crate) async fn diff(cli: &Cli, file: Option<&Path>) -> Result<bool> {
    let configuration = file.map(read).transpose()?;
    let request = v1::DiffRequest { configuration };
    let answer = said(connect(&cli.socket).await?.diff(request).await)?;
    if cli.json {
        print_json(&to_json(&answer)?)?;
    } else {
        for line in difference_lines(&answer.differences) {
            print_line(line)?;
        }
    }
    Ok(!answer.differences.is_empty())
}

pub(crate) async fn show(cli: &Cli, kind: Option<Kind>) -> Result<()> {
    let configuration = configured(cli).await?;
    if !cli.json {
        let text = configuration.to_toml();
        let text = match kind {
            Some(kind) => lines_of(&text, kind),
            None => text,
        };
        return print(text);
    }
    let mut value = to_json(&configuration)?;
    if let Some(kind) = kind {
        value = value[kind.section()].take();
    }
    print_json(&value)
}

/// Returns what of a file's text is of one kind: a line, a list of several, or a section.
fn lines_of(text: &str, kind: Kind) -> String {
    let line = format!("{} = ", kind.section());
    let head = format!("[{}]", kind.section());
    let section = text
        .split("\n\n")
        .find(|section| section.starts_with(&head));
    let list = text.find(&format!("\n{line}[\n")).map(|at| &text[at + 1..]);
    let list = list.and_then(|list| Some(&list[..list.find("\n]")? + 2]));
    let alone = text.lines().find(|one| one.starts_with(&line));
    let found = list.or(alone).or(section).unwrap_or_default().trim_end();
    if found.is_empty() {
        String::new()
    } else {
        format!("{found}\n")
    }
}

pub(crate) async fn status(cli: &Cli) -> Result<()> {
    let answer = connect(&cli.socket)
        .await?
        .status(v1::StatusRequest {})
        .await;
    let status = said(answer)?;
    if cli.json {
        return print_json(&to_json(&status)?);
    }
    print_line(format_args!("revision {}", status.revision))?;
    let rows = status.devices.into_iter().map(|one| {
        let mode = XdpMode::of(one.mode).map_or(String::new(), |mode| word(&mode));
        let state = if one.attached { "attached" } else { "missing" };
        vec![one.name, state.to_owned(), mode]
    });
    print_line(table(&["device", "state", "mode"], rows.collect(), &[]))
}

pub(crate) async fn chain(cli: &Cli, what: &Chain) -> Result<()> {
    use v1::operation::Operation as What;
    let object = |words: &ChainWords| v1::Object {
        object: Some(v1::object::Object::Chain(v1::Chain {
            name: words.name.clone(),
            programs: words.programs.split(',').map(str::to_owned).collect(),
        })),
    };
    let operation = match what {
        Chain::List => return list_chains(cli).await,
        Chain::Add(words) => What::Add(object(words)),
        Chain::Replace(words) => What::Replace(object(words)),
        Chain::Remove { name } => What::Remove(v1::ObjectKey {
            kind: v1::Kind::Chain.into(),
            name: name.clone(),
        }),
    };
    let request = v1::ChangeRequest {
        operations: vec![v1::Operation {
            operation: Some(operation),
        }],
        revision: None,
    };
    let answer = connect(&cli.socket).await?.change(request).await;
    applied(cli, &said(answer)?)
}

async fn list_chains(cli: &Cli) -> Result<()> {
    let chains = configured(cli).await?.chains;
    if cli.json {
        return print_json(&to_json(&chains)?);
    }
    let rows = chains
        .into_iter()
        .map(|(name, chain)| vec![name, chain.to_string()]);
    print_line(table(&["chain", "programs"], rows.collect(), &[]))
}

pub(crate) async fn watch(cli: &Cli) -> Result<()> {
    let answer = connect(&cli.socket).await?.watch(v1::WatchRequest {}).await;
    let mut changes = said(answer)?;
    // The daemon itself never ends it, so what ends it is about the connection.
    while let Ok(Some(change)) = changes.message().await {
        if cli.json {
            print_json(&to_json(&change)?)?;
            continue;
        }
        print_line(format_args!("revision {}", change.revision))?;
        for line in difference_lines(&change.changes) {
            print_line(line)?;
        }
    }
    bail!("hiked has ended, or no longer answers; watch again when it runs, and all that there is comes first")
}

/// Asks what is configured.
pub(crate) async fn configured(cli: &Cli) -> Result<Configuration> {
    let answer = connect(&cli.socket).await?.get(v1::GetRequest {}).await;
    let configuration = there(said(answer)?.configuration)?;
    Ok(configuration.try_into()?)
}

fn read(file: &Path) -> Result<v1::Configuration> {
    let text = fs::read_to_string(file);
    let text = text.with_context(|| format!("cannot read {}", file.display()))?;
    // What is wrong is said here, with its line.
    Ok((&parse(file, &text)?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_a_line_or_a_section() {
        let text = "engine = \"compiled\"\ndevices = [\"a\"]\nports = []\nrules = [\n  { a = 1 },\n]\n\n[chains]\na = \"drop\"\n\n[classes]\nb = 1\n";
        assert_eq!(lines_of(text, Kind::Device), "devices = [\"a\"]\n");
        assert_eq!(lines_of(text, Kind::Rule), "rules = [\n  { a = 1 },\n]\n");
        assert_eq!(lines_of(text, Kind::Chain), "[chains]\na = \"drop\"\n");
        assert_eq!(lines_of(text, Kind::Class), "[classes]\nb = 1\n");
        assert_eq!(lines_of(text, Kind::Route), "");
    }
}
