// SPDX-License-Identifier: GPL-2.0

//! The health of cards as their drivers report it, by `devlink`.

use anyhow::{ensure, Result};

use crate::machine::command;

/// The counts of one reporter of one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) errors: u64,
    pub(crate) recoveries: u64,
}

/// Returns the figures of this reporter, one for each card that has one.
pub(crate) fn health(reporter: &str) -> Result<Vec<Health>> {
    let said = command::run("devlink health show")?;
    let found = parse(&said, reporter);
    ensure!(
        !found.is_empty(),
        "devlink has no reporter {reporter}: {said}"
    );
    Ok(found)
}

/// Waits until a driver has revived its card after it died.
pub(crate) fn wait_revived() -> Result<()> {
    command::wait_until("the driver revives the card", || {
        let cards = health("fw_fatal")?;
        Ok(cards.iter().any(|card| card.recoveries > 0))
    })
}

fn parse(said: &str, reporter: &str) -> Vec<Health> {
    let mut found: Vec<Health> = Vec::new();
    let mut words = said.split_whitespace();
    let mut meant = false;
    while let Some(word) = words.next() {
        if word == "reporter" {
            meant = words.next() == Some(reporter);
            found.extend(meant.then(Health::default));
            continue;
        }
        let Some(health) = found.last_mut().filter(|_| meant) else {
            continue;
        };
        let place = match word {
            // A word follows that may be the name of a figure, too.
            "state" => {
                words.next();
                continue;
            }
            "error" => &mut health.errors,
            "recover" => &mut health.recoveries,
            _ => continue,
        };
        *place = words
            .next()
            .and_then(|count| count.parse().ok())
            .unwrap_or(0);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_belong_to_their_reporter() {
        let said = "pci/0000:00:04.0:\n  reporter fw\n    state error error 2 recover 0\n  reporter fw_fatal\n    \
                    state healthy error 1 recover 1 grace_period 30000 auto_recover true\n\
                    pci/0000:00:05.0:\n  reporter fw\n    state healthy error 0 recover 0\n";
        let health = |errors, recoveries| Health { errors, recoveries };
        assert_eq!(parse(said, "fw"), [health(2, 0), health(0, 0)]);
        assert_eq!(parse(said, "fw_fatal"), [health(1, 1)]);
        assert_eq!(parse(said, "tx"), []);
    }
}
