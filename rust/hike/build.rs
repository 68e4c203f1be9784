// SPDX-License-Identifier: GPL-2.0

//! Compiles the BPF programs of `c-shims/hike/`, and turns what stands there once (the programs, the reasons, the limits) into what
//! C and Rust read.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The clang that is taken if it is there, as for the kernel; xtask holds these against its own choice.
const PREFERRED: u32 = 19;
const OLDEST: u32 = 17;
const NEWEST: u32 = 39;

/// Sources that are compiled for XDP, and those of them that are compiled once more for tcx.
const OBJECTS: [&str; 9] = [
    "dispatcher",
    "compiled",
    "tail_calls",
    "epoch",
    "clock",
    "baseline",
    "pass",
    "drops",
    "probe",
];
const OBJECTS_OF_TCX: [&str; 3] = ["dispatcher", "compiled", "tail_calls"];

fn main() -> Result<()> {
    let sources = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../c-shims/hike");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", sources.display());
    let read = |name: &str| fs::read_to_string(sources.join(name));

    let programs = rows(&read("programs/MANIFEST")?, 6)?;
    let reasons = rows(&read("REASONS")?, 3)?;
    let limits = limits_table(&read("limits.h")?)?;
    fs::write(out.join("programs.gen.h"), programs_header(&programs)?)?;
    fs::write(out.join("reasons.gen.h"), reasons_header(&reasons)?)?;
    fs::write(out.join("programs.rs"), programs_table(&programs)?)?;
    fs::write(out.join("reasons.rs"), reasons_table(&reasons)?)?;
    fs::write(out.join("limits.rs"), limits)?;

    let clang = clang()?;
    for object in OBJECTS {
        compile(&clang, &sources, &out, object, false)?;
    }
    for object in OBJECTS_OF_TCX {
        compile(&clang, &sources, &out, object, true)?;
    }
    Ok(())
}

/// Returns the words of the lines that are no comments; the last of this many holds the rest of its line.
fn rows(text: &str, words: usize) -> Result<Vec<Vec<String>>> {
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut left = line.trim();
        let mut row = Vec::new();
        while row.len() + 1 < words {
            let (word, rest) = left
                .split_once(char::is_whitespace)
                .ok_or_else(|| format!("`{line}` has fewer than {words} words"))?;
            row.push(word.to_owned());
            left = rest.trim_start();
        }
        row.push(left.to_owned());
        rows.push(row);
    }
    Ok(rows)
}

/// Makes constants of the lines `#define HIKE_NAME NUMBER`, with the comments above them.
fn limits_table(text: &str) -> Result<String> {
    let mut rust = String::new();
    let mut above = "";
    for line in text.lines() {
        let defined = line.strip_prefix("#define HIKE_");
        if let Some((name, number)) = defined.and_then(|defined| defined.split_once(' ')) {
            let comment = above.trim_start_matches("/* ").trim_end_matches(" */");
            writeln!(rust, "/// {comment}\npub const {name}: usize = {number};")?;
        }
        above = line;
    }
    Ok(rust)
}

fn function(name: &str) -> String {
    format!("hike_{}", name.replace('-', "_"))
}

/// Returns what the engines include: the programs of the hook that they are compiled for.
fn programs_header(programs: &[Vec<String>]) -> Result<String> {
    let mut text = String::new();
    let everywhere: Vec<&Vec<String>> = programs.iter().filter(|one| one[4] == "any").collect();
    for (condition, programs) in [
        ("#ifdef HIKE_TCX", everywhere),
        ("#else", programs.iter().collect()),
    ] {
        writeln!(text, "{condition}")?;
        for program in &programs {
            let file = program[1].replace('-', "_");
            writeln!(text, "#include \"programs/{file}.h\"")?;
        }
        let all = programs.iter().map(|program| function(&program[1]));
        let all: Vec<String> = all.map(|name| format!("X({name})")).collect();
        writeln!(text, "#define HIKE_EACH_PROGRAM(X) {}", all.join("; "))?;
    }
    writeln!(text, "#endif\nenum hike_number {{")?;
    for program in programs {
        writeln!(text, "\t{}_number = {},", function(&program[1]), program[0])?;
    }
    writeln!(text, "}};")?;
    Ok(text)
}

fn reasons_header(reasons: &[Vec<String>]) -> Result<String> {
    let mut text = "enum hike_reason {\n".to_owned();
    for reason in reasons {
        let name = reason[1].to_uppercase().replace('-', "_");
        writeln!(text, "\tHIKE_{name},")?;
    }
    text += "\tHIKE_REASONS,\n};\n";
    Ok(text)
}

fn programs_table(programs: &[Vec<String>]) -> Result<String> {
    let mut rust = "const PROGRAMS: &[Program] = &[\n".to_owned();
    for program in programs {
        let number: u8 = program[0].parse()?;
        let (name, summary) = (&program[1], &program[5]);
        let ends = one_of(&program[2], "end", "next")?;
        let at_tcx = one_of(&program[4], "any", "xdp")?;
        let needs = &program[3];
        if !["path", "behaviour", "answer", "-"].contains(&needs.as_str()) {
            return Err(
                format!("`{needs}` in programs/MANIFEST is nothing a program needs").into(),
            );
        }
        let (needs_path, needs_behaviour) = (needs == "path", needs == "behaviour");
        let needs_answer = needs == "answer";
        writeln!(
            rust,
            "Program {{ number: {number}, name: {name:?}, ends: {ends}, needs_path: {needs_path}, \
             needs_behaviour: {needs_behaviour}, needs_answer: {needs_answer}, at_tcx: {at_tcx}, summary: {summary:?}, \
             call: \"{}_call\" }},",
            function(name)
        )?;
    }
    rust += "];\n";
    Ok(rust)
}

fn reasons_table(reasons: &[Vec<String>]) -> Result<String> {
    // The programs tell what becomes of a packet by the order.
    let order = |reason: &Vec<String>| match reason[0].as_str() {
        "passed" => Ok(0),
        "redirected" => Ok(1),
        "dropped" => Ok(2),
        other => Err(format!("`{other}` is not what can become of a packet")),
    };
    let orders = reasons
        .iter()
        .map(order)
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let redirected = reasons.iter().find(|reason| reason[0] == "redirected");
    if !orders.is_sorted() || redirected.is_none_or(|first| first[1] != "forwarded") {
        return Err("REASONS must have passed first, then redirected with `forwarded` first, and dropped last".into());
    }
    let mut rust = "const REASONS: &[Reason] = &[\n".to_owned();
    for reason in reasons {
        let fate = ["Passed", "Redirected", "Dropped"][order(reason)?];
        let (name, meaning) = (&reason[1], &reason[2]);
        writeln!(
            rust,
            "Reason {{ fate: Fate::{fate}, name: {name:?}, meaning: {meaning:?} }},"
        )?;
    }
    rust += "];\n";
    Ok(rust)
}

/// Returns whether `word` is `yes`; fails if it is not `no` either.
fn one_of(word: &str, yes: &str, no: &str) -> Result<bool> {
    if word == yes || word == no {
        return Ok(word == yes);
    }
    Err(format!("`{word}` in programs/MANIFEST is neither `{yes}` nor `{no}`").into())
}

fn clang() -> Result<String> {
    let mut versions = std::iter::once(PREFERRED).chain((OLDEST..=NEWEST).rev());
    let name = versions.find_map(|version| {
        let name = format!("clang-{version}");
        let runs = Command::new(&name).arg("--version").output();
        runs.is_ok_and(|output| output.status.success())
            .then_some(name)
    });
    name.ok_or_else(|| format!("no clang-{OLDEST} or newer; try: cargo xtask setup").into())
}

fn compile(clang: &str, sources: &Path, out: &Path, object: &str, tcx: bool) -> Result<()> {
    let mut command = Command::new(clang);
    command
        .args([
            "-target",
            "bpf",
            "-mcpu=v3",
            "-O2",
            "-fno-strict-aliasing",
            "-g",
            "-c",
        ])
        .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
        // The distribution keeps asm/ of its own architecture apart.
        .arg(format!(
            "-idirafter/usr/include/{}-linux-gnu",
            env::var("CARGO_CFG_TARGET_ARCH")?
        ))
        .arg("-I")
        .arg(sources)
        .arg("-I")
        .arg(out)
        // Paths of this machine are of no use in the object.
        .arg(format!("-ffile-prefix-map={}=.", sources.display()))
        .arg(sources.join(object).with_extension("bpf.c"))
        .arg("-o");
    if tcx {
        command
            .arg(out.join(format!("{object}_tcx.o")))
            .arg("-DHIKE_TCX");
    } else {
        command.arg(out.join(object).with_extension("o"));
    }
    let status = command
        .status()
        .map_err(|error| format!("cannot run {clang}: {error}"))?;
    if !status.success() {
        return Err(format!(
            "{clang} failed ({status}); if bpf/bpf_helpers.h is missing, try: cargo xtask setup"
        )
        .into());
    }
    Ok(())
}
