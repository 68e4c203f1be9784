// SPDX-License-Identifier: GPL-2.0

//! The data that objtool adds to a module, compared with the module's code. kbuild shows objtool the objects of C, but not always
//! the Rust half.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};

use crate::tools;

/// The lists that the kernel patches a module by when it loads it, and what the code has for each entry: the kernel's options, the
/// beginning of the names that jumps and calls go to, the list's section.
const SITES: [([&str; 2], &str, &str); 2] = [
    (
        ["CONFIG_MITIGATION_RETHUNK", "CONFIG_RETHUNK"],
        "__x86_return_thunk",
        ".return_sites",
    ),
    (
        ["CONFIG_MITIGATION_RETPOLINE", "CONFIG_RETPOLINE"],
        "__x86_indirect_thunk_",
        ".retpoline_sites",
    ),
];

const UNWINDER: &str = "CONFIG_UNWINDER_ORC";
/// The unwinder's data, sorted like the places in the code that they are about.
const ORC: &str = ".orc_unwind";
const ORC_PLACES: &str = ".orc_unwind_ip";
const ORC_BYTES: usize = 6;
/// The byte of an entry that names the register by which the stack is found, and the bits of the byte that do. Zero: the unwinder
/// is lost here.
const ORC_REGISTER: (usize, u8) = (4, 0xf);

/// Fails unless objtool has seen all code of a module, for a kernel with these headers.
pub(crate) fn require_seen(module: &Path, headers: &Path) -> Result<()> {
    let path = headers.join(".config");
    let config =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let has = |option: &str| {
        config
            .lines()
            .any(|line| line.strip_prefix(option) == Some("=y"))
    };
    let dir = tempfile::tempdir()?;
    let object = Object::read(&plain(module, dir.path())?)?;
    for (options, thunk, list) in SITES {
        if options.into_iter().any(has) {
            let (sites, listed) = (object.jumps_to(thunk), object.entries(list));
            ensure!(
                sites > 0 && sites == listed,
                "objtool has not seen all of {}: its code goes {sites} times to {thunk}, and {list} has {listed} of these places",
                module.display()
            );
        }
    }
    if has(UNWINDER) {
        let lost = object.functions_without_orc()?;
        ensure!(
            lost.is_empty(),
            "objtool has not seen all of {}: {} functions have no entry in {ORC}, among them {}",
            module.display(),
            lost.len(),
            lost[0]
        );
    }
    Ok(())
}

/// Returns the module, or an unpacked copy in a folder if it is compressed, as DKMS may do.
fn plain(module: &Path, dir: &Path) -> Result<PathBuf> {
    if module.extension().is_none_or(|end| end != "xz") {
        return Ok(module.to_path_buf());
    }
    let copy = dir.join(module.file_name().context("a module has a name")?);
    fs::copy(module, &copy)?;
    tools::output(tools::command("xz").arg("--decompress").arg(&copy))?;
    Ok(copy.with_extension(""))
}

/// The content of a module, as `readelf` lists it.
#[derive(Debug, Default)]
struct Object {
    sections: BTreeMap<usize, Section>,
    symbols: BTreeMap<usize, Symbol>,
    relocations: Vec<Relocation>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Section {
    name: String,
    offset: usize,
    size: usize,
    is_code: bool,
    /// Another section's number: of relocations the one that they are in.
    about: usize,
}

#[derive(Debug)]
struct Symbol {
    name: String,
    value: i64,
    is_function: bool,
    /// None: of the kernel or of another module.
    section: Option<usize>,
}

#[derive(Debug)]
struct Relocation {
    /// The number of the section that it is in.
    within: usize,
    offset: usize,
    symbol: usize,
    addend: i64,
}

impl Object {
    fn read(module: &Path) -> Result<Self> {
        let readelf = |what: &str| {
            let mut readelf = tools::command("readelf");
            tools::output(readelf.args(["--wide", what]).arg(module))
        };
        let sections = sections(&readelf("--sections")?);
        Ok(Self {
            symbols: symbols(&readelf("--symbols")?),
            relocations: relocations(&readelf("--relocs")?, &sections),
            sections,
            bytes: fs::read(module)?,
        })
    }

    /// Returns how often code refers to a name of another that begins like that.
    fn jumps_to(&self, begin: &str) -> usize {
        let counts = |one: &&Relocation| {
            let symbol = self.symbols.get(&one.symbol);
            let section = self.sections.get(&one.within);
            symbol.is_some_and(|symbol| symbol.section.is_none() && symbol.name.starts_with(begin))
                && section.is_some_and(|section| section.is_code)
        };
        self.relocations.iter().filter(counts).count()
    }

    /// Returns how many places a section lists.
    fn entries(&self, section: &str) -> usize {
        self.relocations_in(section).count()
    }

    fn relocations_in(&self, section: &str) -> impl Iterator<Item = &Relocation> {
        let number = self.sections.iter().find(|(_, one)| one.name == section);
        let number = number.map(|(number, _)| *number);
        let all = self.relocations.iter();
        all.filter(move |one| Some(one.within) == number)
    }

    /// Returns the functions whose beginning the unwinder knows nothing of.
    fn functions_without_orc(&self) -> Result<Vec<&str>> {
        let data = self.sections.values().find(|section| section.name == ORC);
        let data = data.with_context(|| format!("the module has no {ORC}"))?;
        let data = self.bytes.get(data.offset..data.offset + data.size);
        let data = data.context("the module is cut off")?;
        // Of each section: from where on, and whether the unwinder knows the way there. An object ends with an entry that it does
        // not, and the next object may begin at the same place.
        let mut known: BTreeMap<usize, Vec<(i64, bool)>> = BTreeMap::new();
        for place in self.relocations_in(ORC_PLACES) {
            let symbol = self.symbols.get(&place.symbol);
            let (symbol, section) = symbol
                .and_then(|symbol| Some((symbol, symbol.section?)))
                .with_context(|| format!("{ORC_PLACES} has an entry about no section"))?;
            let (at, bits) = ORC_REGISTER;
            let register = data.get(place.offset / size_of::<u32>() * ORC_BYTES + at);
            let register = register.with_context(|| format!("{ORC} is too short"))?;
            let from = symbol.value + place.addend;
            known
                .entry(section)
                .or_default()
                .push((from, register & bits != 0));
        }
        for places in known.values_mut() {
            places.sort_unstable();
        }
        let is_known = |function: &Symbol| {
            let places = function.section.and_then(|section| known.get(&section));
            places.is_some_and(|places| {
                let before = places.partition_point(|(from, _)| *from <= function.value);
                before > 0 && places[before - 1].1
            })
        };
        let functions: Vec<&Symbol> = self
            .symbols
            .values()
            .filter(|symbol| symbol.is_function && symbol.section.is_some())
            .collect();
        ensure!(!functions.is_empty(), "the module has no functions");
        let lost = functions.into_iter().filter(|function| !is_known(function));
        Ok(lost.map(|function| function.name.as_str()).collect())
    }
}

/// Reads lines `[NUMBER] NAME TYPE ADDRESS OFFSET SIZE ENTRY FLAGS LINK ABOUT ALIGNMENT`. Those of sections without flags are of no
/// interest.
fn sections(text: &str) -> BTreeMap<usize, Section> {
    let section = |line: &str| {
        let (number, rest) = line.trim().strip_prefix('[')?.split_once(']')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let &[name, _, _, offset, size, _, flags, _, about, _] = &words[..] else {
            return None;
        };
        let section = Section {
            name: name.to_owned(),
            offset: usize::from_str_radix(offset, 16).ok()?,
            size: usize::from_str_radix(size, 16).ok()?,
            is_code: flags.contains('X'),
            about: about.parse().ok()?,
        };
        Some((number.trim().parse().ok()?, section))
    };
    text.lines().filter_map(section).collect()
}

/// Reads lines `NUMBER: VALUE SIZE TYPE BIND VISIBILITY SECTION NAME`.
fn symbols(text: &str) -> BTreeMap<usize, Symbol> {
    let symbol = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[number, value, _, kind, _, _, section, ref name @ ..] = &words[..] else {
            return None;
        };
        let symbol = Symbol {
            name: name.first().copied().unwrap_or_default().to_owned(),
            value: i64::from_str_radix(value, 16).ok()?,
            is_function: kind == "FUNC",
            section: section.parse().ok(),
        };
        Some((number.strip_suffix(':')?.parse().ok()?, symbol))
    };
    text.lines().filter_map(symbol).collect()
}

/// Reads lines `OFFSET INFO TYPE VALUE NAME + ADDEND`, below one that has the section's place: its name may be cut off there.
fn relocations(text: &str, sections: &BTreeMap<usize, Section>) -> Vec<Relocation> {
    let at = |place: &str| {
        let offset = usize::from_str_radix(place.split(' ').next()?, 16).ok()?;
        let mut sections = sections.values();
        let section = sections.find(|section| section.offset == offset && section.about != 0)?;
        Some(section.about)
    };
    let mut within = 0;
    let mut all = Vec::new();
    for line in text.lines() {
        if let Some((_, place)) = line.split_once("' at offset 0x") {
            within = at(place).unwrap_or(0);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[offset, info, _, _, _, sign @ ("+" | "-"), addend] = &words[..] else {
            continue;
        };
        let hex = |word| u64::from_str_radix(word, 16).ok();
        if let (Some(offset), Some(info), Some(addend)) = (hex(offset), hex(info), hex(addend)) {
            let addend = addend as i64;
            all.push(Relocation {
                within,
                offset: offset as usize,
                symbol: (info >> 32) as usize,
                addend: if sign == "-" { -addend } else { addend },
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTIONS: &str = "\
  [ 0]                   NULL            0000000000000000 000000 000000 00      0   0  0
  [ 3] .text             PROGBITS        0000000000000000 0000b0 005d2d 00  AX  0   0 16
  [ 4] .rela.text        RELA            0000000000000000 000100 000030 18   I  9   3  8
  [ 5] .return_sites     PROGBITS        0000000000000000 000100 000000 00   A  0   0  1
  [ 6] .rela.return_sites RELA            0000000000000000 000200 000018 18   I  9   5  8
  [12] .orc_unwind       PROGBITS        0000000000000000 000002 000012 00   A  0   0  1
  [13] .orc_unwind_ip    PROGBITS        0000000000000000 000020 00000c 00   A  0   0  1
  [14] .rela.orc_unwind_ip RELA            0000000000000000 000300 000048 18   I  9  13  8";
    const SYMBOLS: &str = "\
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     1: 0000000000000000     0 SECTION LOCAL  DEFAULT    3 .text
     2: 0000000000000010    16 FUNC    LOCAL  DEFAULT    3 in_c
     3: 0000000000000020    16 FUNC    LOCAL  DEFAULT    3 _RNv4rust
     4: 0000000000000000     0 NOTYPE  GLOBAL DEFAULT  UND __x86_return_thunk";
    const RELOCATIONS: &str = "\
Relocation section '.rela.text' at offset 0x100 contains 2 entries:
    Offset             Info             Type               Symbol's Value  Symbol's Name + Addend
000000000000001c  0000000400000004 R_X86_64_PLT32         0000000000000000 __x86_return_thunk - 4
000000000000002c  0000000400000004 R_X86_64_PLT32         0000000000000000 __x86_return_thunk - 4

Relocation section '.rela.return_sites' at offset 0x200 contains 1 entry:
0000000000000000  0000000100000002 R_X86_64_PC32          0000000000000000 .text + 1b

Relocation section '.rela.orc_unwind_ip' at offset 0x300 contains 3 entries:
0000000000000000  0000000100000002 R_X86_64_PC32          0000000000000000 .text + 10
0000000000000004  0000000100000002 R_X86_64_PC32          0000000000000000 .text + 20
0000000000000008  0000000100000002 R_X86_64_PC32          0000000000000000 .text + 20";

    /// Returns a module whose three entries for the unwinder have these registers.
    fn object(registers: [u8; 3]) -> Object {
        let mut bytes = vec![0; 2];
        for register in registers {
            bytes.extend([8, 0, 0, 0, register, 0]);
        }
        let sections = sections(SECTIONS);
        Object {
            symbols: symbols(SYMBOLS),
            relocations: relocations(RELOCATIONS, &sections),
            sections,
            bytes,
        }
    }

    #[test]
    fn places_are_counted_in_code_and_in_their_list() {
        let object = object([5, 0, 5]);
        assert_eq!(object.jumps_to("__x86_return_thunk"), 2);
        assert_eq!(object.entries(".return_sites"), 1);
        assert_eq!(object.entries(".retpoline_sites"), 0);
    }

    #[test]
    fn a_function_is_lost_where_the_unwinder_is() {
        let lost = |registers| {
            let object = object(registers);
            object.functions_without_orc().unwrap().join(" ")
        };
        // One object ends where the other begins.
        assert_eq!(lost([5, 0, 5]), "");
        assert_eq!(lost([5, 5, 0]), "");
        assert_eq!(lost([5, 0, 0]), "_RNv4rust");
        assert_eq!(lost([0, 0, 5]), "in_c");
    }
}
