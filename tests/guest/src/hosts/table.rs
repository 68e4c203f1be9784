// SPDX-License-Identifier: GPL-2.0

//! The table of hosts, and of what becomes of a flow there: made of the cases, and kept in `rust/README.md` between two comments.

use super::elephant::Fate;
use super::Case;

const HEAD: &str = "| a host with | the flow is | cases |\n|---|---|---|\n";

/// One line of the table.
struct Row<'a> {
    host: &'a str,
    outcome: String,
    names: Vec<&'a str>,
}

/// Returns the table in Markdown; cases of one host and one outcome share a line.
pub(super) fn table(cases: &[Case]) -> String {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for case in cases {
        let outcome = outcome(case);
        let mut same = rows.iter_mut();
        match same.find(|row| row.host == case.host && row.outcome == outcome) {
            Some(row) => row.names.push(&case.name),
            None => rows.push(Row {
                host: case.host,
                outcome,
                names: vec![&case.name],
            }),
        }
    }
    let lines = rows.iter().map(|row| {
        let names: Vec<_> = row.names.iter().map(|name| format!("`{name}`")).collect();
        format!(
            "| {} | {} | {} |\n",
            row.host,
            row.outcome,
            names.join(", ")
        )
    });
    HEAD.to_owned() + &lines.collect::<String>()
}

fn outcome(case: &Case) -> String {
    let fate = match case.fate {
        Fate::Split => "split".to_owned(),
        Fate::Kept(reason) => format!("whole, with reason `{reason}`"),
        Fate::Either => "split or whole".to_owned(),
    };
    match case.differs {
        None => fate,
        Some(differs) => format!("{fate}; different: {differs}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = include_str!("../../../../rust/README.md");
    const MARKS: [&str; 2] = ["<!-- mflow-guest hosts --table -->\n", "<!-- end -->"];

    #[test]
    fn the_table_of_the_manual_is_that_of_the_cases() {
        let [begin, end] = MARKS;
        let (_, rest) = MANUAL.split_once(begin).expect("the table begins");
        let (found, _) = rest.split_once(end).expect("the table ends");
        assert_eq!(
            found,
            table(&super::super::all()),
            "mflow-guest hosts --table prints the table that has to be there"
        );
    }
}
