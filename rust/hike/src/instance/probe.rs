// SPDX-License-Identifier: GPL-2.0

//! Trials of what the running kernel can do.

use std::sync::OnceLock;

use anyhow::{ensure, Result};
use aya::programs::{TestRun as _, TestRunOptions, Xdp};

use super::loader;
use crate::config::behaviour::Behaviour;

const TAKES_TABLES: &str = "hike_takes_tables";
/// `enum xdp_action`.
const XDP_PASS: u32 = 2;
/// The shortest frame that a test run takes.
const FRAME: [u8; 14] = [0; 14];

/// Fails if a behaviour names a table, and the kernel's look-up takes none.
pub(super) fn check_table(behaviour: &Behaviour, table: u32) -> Result<()> {
    if table == 0 {
        return Ok(());
    }
    refuse_table(behaviour, takes_tables()?)
}

fn refuse_table(behaviour: &Behaviour, takes_tables: bool) -> Result<()> {
    ensure!(
        takes_tables,
        "{behaviour} looks in a table of its own, which this kernel's look-up does not take (Linux 6.5 and newer, and late 6.1 do); leave \
         the table out, or leave the SID to the kernel's own seg6local"
    );
    Ok(())
}

/// Returns whether the kernel's look-up takes the number of a table.
fn takes_tables() -> Result<bool> {
    static TAKES: OnceLock<bool> = OnceLock::new();
    if let Some(takes) = TAKES.get() {
        return Ok(*takes);
    }
    let mut object = loader::probe()?;
    loader::load(&mut object, TAKES_TABLES)?;
    let program: &mut Xdp = loader::program(&mut object, TAKES_TABLES)?.try_into()?;
    let done = program.test_run(TestRunOptions {
        data_in: Some(&FRAME),
        ..TestRunOptions::default()
    })?;
    Ok(*TAKES.get_or_init(|| done.return_value == XDP_PASS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_the_kernel_cannot_look_in_is_refused() {
        let behaviour = Behaviour::Dt4 { table: Some(100) };
        assert!(check_table(&behaviour, 0).is_ok() && refuse_table(&behaviour, true).is_ok());
        let refused = refuse_table(&behaviour, false).map_err(|error| error.to_string());
        assert_eq!(
            refused,
            Err("End.DT4 looks in a table of its own, which this kernel's look-up does not take (Linux 6.5 and newer, and late 6.1 do); \
                 leave the table out, or leave the SID to the kernel's own seg6local"
                .to_owned())
        );
    }
}
