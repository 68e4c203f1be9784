// SPDX-License-Identifier: GPL-2.0

//! Kernel configuration: fragments are merged, and what is asked for must be what comes out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{bail, Result};

#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Options by name without `CONFIG_`; an option that is off has the value `n`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Config(BTreeMap<String, String>);

impl Config {
    /// Returns what the fragments ask for together: a later one wins.
    pub(crate) fn merge(fragments: &[Fragment]) -> Result<Self> {
        let mut all = Self::default();
        for Fragment { name, text } in fragments {
            for (number, line) in text.lines().enumerate() {
                match parse_line(line) {
                    Line::Option(option, value) => {
                        all.0.insert(option.to_owned(), value.to_owned());
                    }
                    Line::Nothing => {}
                    Line::Bad => bail!(
                        "{name}:{}: `{line}` is neither `CONFIG_NAME=value`, `# CONFIG_NAME is not set` nor a comment",
                        number + 1
                    ),
                }
            }
        }
        Ok(all)
    }

    /// Returns the options of a finished `.config`, whatever else is in it.
    pub(crate) fn of_kernel(text: &str) -> Self {
        let options = text.lines().filter_map(|line| match parse_line(line) {
            Line::Option(option, value) => Some((option.to_owned(), value.to_owned())),
            Line::Nothing | Line::Bad => None,
        });
        Self(options.collect())
    }

    /// Returns the options as lines that `make olddefconfig` reads.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (option, value) in &self.0 {
            // Writing to a string cannot fail.
            let _ = match value.as_str() {
                "n" => writeln!(text, "# CONFIG_{option} is not set"),
                value => writeln!(text, "CONFIG_{option}={value}"),
            };
        }
        text
    }

    pub(crate) fn not_effective_in(&self, actual: &Self) -> Vec<String> {
        self.0
            .iter()
            .filter_map(|(option, wanted)| {
                let got = match actual.0.get(option) {
                    Some(got) => got,
                    // An option that does not exist or is hidden is as good as off or empty.
                    None if wanted == "\"\"" => return None,
                    None => "n",
                };
                (got != wanted).then(|| format!("CONFIG_{option}: asked for {wanted}, got {got}"))
            })
            .collect()
    }
}

enum Line<'a> {
    Option(&'a str, &'a str),
    Nothing,
    Bad,
}

fn parse_line(line: &str) -> Line<'_> {
    let line = line.trim_end();
    if let Some((option, value)) = line
        .strip_prefix("CONFIG_")
        .and_then(|rest| rest.split_once('='))
    {
        return if is_name(option) && !value.is_empty() {
            Line::Option(option, value)
        } else {
            Line::Bad
        };
    }
    if let Some(option) = line
        .strip_prefix("# CONFIG_")
        .and_then(|rest| rest.strip_suffix(" is not set"))
    {
        return Line::Option(option, "n");
    }
    if line.is_empty() || line.starts_with('#') {
        return Line::Nothing;
    }
    Line::Bad
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(text: &str) -> Fragment {
        Fragment {
            name: "test.config".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn later_fragments_win_and_off_is_one_thing() {
        let merged = Config::merge(&[
            fragment("# why\nCONFIG_A=y\nCONFIG_B=n\n\nCONFIG_S=\"a b\"\n"),
            fragment("# CONFIG_A is not set\nCONFIG_C=m\n"),
        ])
        .unwrap();
        let text = "# CONFIG_A is not set\n# CONFIG_B is not set\nCONFIG_C=m\nCONFIG_S=\"a b\"\n";
        assert_eq!(merged.text(), text);
    }

    #[test]
    fn a_line_that_is_no_option_names_its_place() {
        let error = Config::merge(&[fragment("CONFIG_A=y\nB=y\n")]).unwrap_err();
        assert!(
            error.to_string().starts_with("test.config:2: `B=y`"),
            "{error}"
        );
        assert!(Config::merge(&[fragment("CONFIG_A=\n")]).is_err());
        assert!(Config::merge(&[fragment("CONFIG_A = y\n")]).is_err());
    }

    #[test]
    fn what_is_not_effective_is_listed() {
        let wanted = Config::merge(&[fragment(
            "CONFIG_A=y\nCONFIG_B=m\nCONFIG_C=n\nCONFIG_D=n\nCONFIG_E=64\nCONFIG_F=\"\"\n",
        )])
        .unwrap();
        let actual =
            Config::of_kernel("CONFIG_A=y\nCONFIG_B=y\n# CONFIG_C is not set\nCONFIG_E=64\n");
        assert_eq!(
            wanted.not_effective_in(&actual),
            ["CONFIG_B: asked for m, got y"]
        );

        let nothing = Config::of_kernel("");
        assert_eq!(
            wanted.not_effective_in(&nothing),
            [
                "CONFIG_A: asked for y, got n",
                "CONFIG_B: asked for m, got n",
                "CONFIG_E: asked for 64, got n"
            ]
        );
    }
}
