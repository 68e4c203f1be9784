// SPDX-License-Identifier: GPL-2.0

//! The mirror this machine installs from, as an apt source of another suite.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The ending by which apt knows the format.
    pub(crate) extension: &'static str,
    pub(crate) text: String,
}

/// Returns the source this system's own packages come from, with its address, keys and options, for `suite`.
pub(crate) fn source_of(suite: &str) -> Result<Source> {
    let own = own_suites();
    for path in files(Path::new("/etc/apt"))? {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Some(source) = translate(&path, &text, &own, suite) {
            return Ok(source);
        }
    }
    anyhow::bail!(
        "no apt source serves {} main: check /etc/apt/sources.list and /etc/apt/sources.list.d",
        own[0]
    )
}

fn own_suites() -> Vec<String> {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let code_name = text
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .map(|name| name.trim_matches('"').to_owned());
    let aliases = ["stable", "oldstable", "oldoldstable"].map(str::to_owned);
    code_name.into_iter().chain(aliases).collect()
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if let Ok(entries) = fs::read_dir(dir.join("sources.list.d")) {
        for entry in entries {
            files.push(entry?.path());
        }
    }
    files.sort();
    files.insert(0, dir.join("sources.list"));
    // Other endings are ignored by apt as well.
    files.retain(|path| path.is_file() && (ends_with(path, "list") || ends_with(path, "sources")));
    Ok(files)
}

fn ends_with(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|have| have == extension)
}

fn translate(path: &Path, text: &str, own: &[String], suite: &str) -> Option<Source> {
    let (extension, text) = if ends_with(path, "sources") {
        ("sources", translate_stanzas(text, own, suite)?)
    } else {
        ("list", translate_lines(text, own, suite)?)
    };
    Some(Source { extension, text })
}

/// Translates the format with one field per line.
fn translate_stanzas(text: &str, own: &[String], suite: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines
        .split(|line| line.trim().is_empty())
        .find_map(|stanza| {
            let value = |name: &str| {
                stanza.iter().find_map(|line| {
                    let (left, right) = line.split_once(':')?;
                    left.eq_ignore_ascii_case(name).then(|| right.trim())
                })
            };
            let has = |name: &str, wanted: &str| {
                value(name).is_some_and(|value| value.split_whitespace().any(|word| word == wanted))
            };
            let serves = has("Types", "deb")
                && has("Components", "main")
                && own.iter().any(|name| has("Suites", name))
                && !has("Enabled", "no");
            serves.then(|| {
                let mut new = String::new();
                for line in stanza {
                    let line = match line.split_once(':') {
                        // A field may go on, as a key does: on lines that start with a space.
                        _ if line.starts_with([' ', '\t']) => (*line).to_owned(),
                        Some((name, _)) if name.eq_ignore_ascii_case("Types") => {
                            "Types: deb".to_owned()
                        }
                        Some((name, _)) if name.eq_ignore_ascii_case("Suites") => {
                            format!("Suites: {suite}")
                        }
                        Some((name, _)) if name.eq_ignore_ascii_case("Components") => {
                            "Components: main".to_owned()
                        }
                        _ => (*line).to_owned(),
                    };
                    new.push_str(&line);
                    new.push('\n');
                }
                new
            })
        })
}

/// Translates the format with one source per line.
fn translate_lines(text: &str, own: &[String], suite: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let rest = line.strip_prefix("deb")?;
        if !rest.starts_with([' ', '\t', '[']) {
            return None;
        }
        let rest = rest.trim_start();
        let (options, rest) = match rest.strip_prefix('[') {
            Some(inside) => {
                let (options, rest) = inside.split_once(']')?;
                (format!("[{options}] "), rest)
            }
            None => (String::new(), rest),
        };
        let mut words = rest.split_whitespace();
        let uri = words.next()?;
        let serves = words
            .next()
            .is_some_and(|name| own.iter().any(|own| own == name))
            && words.any(|component| component == "main");
        serves.then(|| format!("deb {options}{uri} {suite} main\n"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<String> {
        vec!["bookworm".to_owned(), "oldstable".to_owned()]
    }

    #[test]
    fn stanzas_keep_address_and_key() {
        let text = "\
Types: deb deb-src
URIs: https://third.test/
Suites: bookworm
Components: contrib

# The mirror.
Types: deb deb-src
URIs: mirror+file:/etc/mirrors
# A comment within.
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 Suites: not a field
";
        let expected = "\
Types: deb
URIs: mirror+file:/etc/mirrors
Suites: trixie
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 Suites: not a field
";
        let source = translate(Path::new("x.sources"), text, &own(), "trixie").unwrap();
        assert_eq!(source.text, expected);
        assert_eq!(source.extension, "sources");
    }

    #[test]
    fn stanzas_that_do_not_serve_the_system_are_passed_over() {
        let stanza = |change: (&str, &str)| {
            "Types: deb\nURIs: http://m.test\nSuites: bookworm\nComponents: main\n"
                .replace(change.0, change.1)
        };
        let translate = |text: &str| translate_stanzas(text, &own(), "trixie");
        assert!(translate(&stanza(("", ""))).is_some());
        assert!(translate(&stanza(("Types: deb", "Types: deb-src"))).is_none());
        assert!(translate(&stanza(("bookworm", "bookworm-security"))).is_none());
        assert!(translate(&stanza(("main", "main\nEnabled: no"))).is_none());
    }

    #[test]
    fn lines_keep_address_and_options() {
        let translate = |text: &str| translate_lines(text, &own(), "trixie");
        let text = "\
# deb http://old.test bookworm main
deb-src http://m.test bookworm main
deb http://m.test/security bookworm-security main
deb [arch=amd64 signed-by=/k.gpg] http://m.test/debian bookworm main contrib # ours
";
        assert_eq!(
            translate(text).as_deref(),
            Some("deb [arch=amd64 signed-by=/k.gpg] http://m.test/debian trixie main\n")
        );
        assert_eq!(
            translate("deb http://m.test/debian\toldstable main\n").as_deref(),
            Some("deb http://m.test/debian trixie main\n")
        );
        assert_eq!(
            translate("deb http://m.test/debian bookworm contrib\n"),
            None
        );
    }

    #[test]
    fn only_the_endings_apt_knows_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let parts = dir.path().join("sources.list.d");
        fs::create_dir(&parts).unwrap();
        for name in ["b.list", "a.sources", "c.list.disabled"] {
            fs::write(parts.join(name), "").unwrap();
        }
        assert_eq!(
            files(dir.path()).unwrap(),
            [parts.join("a.sources"), parts.join("b.list")]
        );
    }
}
