// SPDX-License-Identifier: GPL-2.0

//! The ConnectX model under libFuzzer, which looks for guests that reach code no guest has reached before.

use std::fs;

use anyhow::{Context as _, Result};

use crate::builds;
use crate::paths;
use crate::step::Step;
use crate::test::{Ctx, Outcome};
use crate::tools;

const NAME: &str = "mlx5: any guest, under libFuzzer";
const FOLDER: &str = "target/fuzz";
const SECONDS: u32 = 20;
const SECONDS_FULL: u32 = 600;
/// The options with which the compiler adds what libFuzzer needs: a counter at each edge, its place, and the values compared.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
     -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares \
     -Cdebug-assertions=on -Coverflow-checks=on";
/// Named, so that build scripts are not built that way, too.
const TARGET: &str = "x86_64-unknown-linux-gnu";

pub(super) fn run(ctx: &Ctx) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if tools::find("c++").is_none() {
        outcome.skip(NAME, "no C++ compiler; try: cargo xtask setup");
        return Ok(outcome);
    }
    let place = ctx.places.take();
    outcome.record(NAME, fuzz(ctx.full));
    outcome.held = place.held();
    Ok(outcome)
}

fn fuzz(full: bool) -> Result<()> {
    let folder = paths::project().join(FOLDER);
    Step::new("build the fuzz target", "mlx5-fuzz-build")
        .hint("cargo xtask test mlx5")
        .run(
            builds::cargo(FOLDER)?
                .env("RUSTFLAGS", RUSTFLAGS)
                .args(["build", "--release", "--locked"])
                .args(["--package", "mlx5-model-fuzz", "--target", TARGET]),
        )?;
    // It goes on from what was found before.
    let corpus = folder.join("corpus");
    fs::create_dir_all(&corpus).with_context(|| format!("cannot make {}", corpus.display()))?;
    let seconds = if full { SECONDS_FULL } else { SECONDS };
    let mut program = tools::command("nice");
    program
        .current_dir(&folder)
        .arg(folder.join(TARGET).join("release/guest"))
        .arg(format!("-max_total_time={seconds}"))
        // An input that takes this many seconds counts as a hang.
        .args(["-timeout=10", "-max_len=8192"])
        .args(["-print_final_stats=1", "corpus"]);
    Step::new(
        format!("fuzz the ConnectX model for {seconds} s"),
        "mlx5-fuzz",
    )
    .hint("cargo run -p mlx5-model-fuzz -- the file that the log names, in target/fuzz/")
    .run(&mut program)?;
    Ok(())
}
