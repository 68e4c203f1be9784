// SPDX-License-Identifier: GPL-2.0

//! Reads where the fields of commands, events, completions and work queue entries are from the driver's own headers,
//! `include/linux/mlx5/`.
//!
//! `mlx5_ifc.h` has structures in which every `u8 name[N]` is a field of N bits; its neighbours have common structures of
//! bytes and words, without padding. What is read can be written as a table, one structure a line (`layouts/`), and as Rust
//! constants. The build script includes this file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The headers beside `mlx5_ifc.h` that are read.
const NEIGHBOURS: [&str; 2] = ["device.h", "qp.h"];

/// The structures the model uses.
pub const WANTED: &str = "\
    access_register_in cmd_hca_cap cmd_if_box cmd_inter_comp_event cmd_queue_entry comp_event cqc cqe64 create_cq_in \
    create_eq_in create_flow_group_in create_flow_table_in create_mkey_in create_rq_in create_rqt_in create_sq_in \
    create_tir_in delete_fte_in dest_format_struct destroy_flow_group_in destroy_flow_table_in eqc eqe err_cqe \
    eth_2819_cntrs_grp_data_layout eth_802_3_cntrs_grp_data_layout flow_context flow_table_context \
    flow_table_fields_supported flow_table_nic_cap flow_table_prop_layout fte_match_param fte_match_set_lyr_2_4 \
    health_buffer initial_seg mac_address_layout mini_cqe8 mkc mkey_seg modify_nic_vport_context_in \
    modify_nic_vport_field_select modify_rq_in modify_rqt_in modify_sq_in modify_tir_bitmask modify_tir_in \
    nic_vport_context paos_reg per_protocol_networking_offload_caps pmtu_reg port_state_change_event ppcnt_reg ptys_reg \
    query_cq_out query_hca_cap_out query_issi_out query_nic_vport_context_out query_q_counter_in query_q_counter_out \
    query_rq_out query_sq_out query_vport_counter_out query_vport_state_out rqc rqtc rx_hash_field_select \
    set_flow_table_root_in set_fte_in sqc tirc traffic_counter wq wqe_ctrl_seg wqe_data_seg wqe_eth_seg wqe_inline_seg \
    wqe_srq_next_seg wqe_umr_ctrl_seg";

/// One field: its first bit, counted from the start of the structure, and how many it has; none if it goes on to the end.
pub type Bits = (u32, u32);

/// One structure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The number of bits of all of it.
    pub bits: u32,
    /// The fields by name; of an array, the first element.
    pub fields: BTreeMap<String, Bits>,
}

/// All that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layouts {
    /// The structures by name.
    pub structs: BTreeMap<String, Layout>,
    /// The commands by name.
    pub commands: BTreeMap<String, u32>,
}

/// Structures as the headers have them: whether each is a union, and its members.
type Raw = BTreeMap<String, (bool, Vec<Member>)>;

#[derive(Clone, Debug)]
enum Member {
    Bits {
        name: String,
        sizes: Vec<u32>,
    },
    Known {
        of: String,
        name: String,
        count: u32,
    },
    Inline {
        union: bool,
        members: Vec<Member>,
        name: String,
    },
}

impl Layouts {
    /// Reads `mlx5_ifc.h` and its neighbours, and keeps what is wanted.
    pub fn from_headers(ifc: &Path) -> Result<Self, String> {
        let mut raw = Raw::new();
        let tokens = tokens(&read(ifc)?);
        collect(&tokens, true, &mut raw);
        for neighbour in neighbours(ifc) {
            collect(&self::tokens(&read(&neighbour)?), false, &mut raw);
        }
        let mut structs = BTreeMap::new();
        for name in WANTED.split(' ') {
            structs.insert(name.to_owned(), lay_out(&raw, name)?);
        }
        let commands = tokens
            .windows(3)
            .filter(|window| window[1] == "=")
            .filter_map(|window| {
                let name = window[0].strip_prefix("MLX5_CMD_OP_")?;
                // Commands about queue pairs may begin with a digit; they are not for network devices.
                let is_name = !name.starts_with(|first: char| first.is_ascii_digit());
                is_name.then_some((name.to_owned(), number(&window[2])?))
            })
            .collect();
        Ok(Self { structs, commands })
    }

    /// Writes the table.
    pub fn to_table(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.commands {
            let _ = writeln!(text, "command {name} {value:#x}");
        }
        for (name, layout) in &self.structs {
            let _ = write!(text, "struct {name} {}", layout.bits);
            for (field, (bit, width)) in &layout.fields {
                let _ = write!(text, " {field}:{bit}:{width}");
            }
            text.push('\n');
        }
        text
    }

    /// Reads the table.
    pub fn from_table(text: &str) -> Result<Self, String> {
        let mut layouts = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let bad = || format!("not a line of a table of layouts: {line}");
            let mut words = line.split(' ');
            let (kind, name, value) = (words.next(), words.next(), words.next());
            let value = value.and_then(number).ok_or_else(bad)?;
            let name = name.ok_or_else(bad)?.to_owned();
            if kind == Some("command") {
                layouts.commands.insert(name, value);
                continue;
            }
            let mut layout = Layout {
                bits: value,
                ..Layout::default()
            };
            for word in words {
                let mut parts = word.split(':');
                let field = parts.next().ok_or_else(bad)?.to_owned();
                let bit = parts.next().and_then(number).ok_or_else(bad)?;
                let width = parts.next().and_then(number).ok_or_else(bad)?;
                layout.fields.insert(field, (bit, width));
            }
            layouts.structs.insert(name, layout);
        }
        Ok(layouts)
    }

    /// Writes the constants: a module for each structure, and one for the commands.
    pub fn to_rust(&self) -> String {
        let mut text = String::new();
        for (name, layout) in &self.structs {
            let _ = writeln!(
                text,
                "pub mod {name} {{\n    pub const BYTES: usize = {};",
                layout.bits / 8
            );
            for (field, (bit, width)) in &layout.fields {
                let field = field.to_uppercase().replace('.', "_");
                let _ = writeln!(text, "    pub const {field}: crate::firmware::field::Field = crate::firmware::field::Field::new({bit}, {width});");
            }
            text.push_str("}\n");
        }
        text.push_str("pub mod op {\n");
        for (name, value) in &self.commands {
            let _ = writeln!(text, "    pub const {name}: u16 = {value:#x};");
        }
        text.push_str("}\npub const COMMANDS: &[(u16, &str)] = &[\n");
        for (name, value) in &self.commands {
            let _ = writeln!(text, "    ({value:#x}, \"{name}\"),");
        }
        text.push_str("];\n");
        text
    }
}

/// Reads a file.
pub fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Returns the headers that are read beside `mlx5_ifc.h`.
pub fn neighbours(ifc: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    NEIGHBOURS.iter().map(|name| ifc.with_file_name(name))
}

/// Adds a header's structures; one that an earlier header has described to the bit stays as it is.
fn collect(tokens: &[String], bits: bool, raw: &mut Raw) {
    let prefix = if bits { "mlx5_ifc_" } else { "" };
    let mut at = 0;
    while at + 2 < tokens.len() {
        let union = tokens[at] == "union";
        let is_type = (union || tokens[at] == "struct") && tokens[at + 1].starts_with(prefix);
        if is_type && tokens[at + 2] == "{" {
            let name = type_name(&tokens[at + 1]);
            at += 3;
            let mut end = at;
            // Some have sizes that are names; if one of these is wanted, lay_out() says so.
            if let Ok(members) = members(tokens, &mut end, bits) {
                at = end;
                raw.entry(name).or_insert((union, members));
            }
        } else {
            at += 1;
        }
    }
}

/// Returns the name of a structure without what the headers put around it.
fn type_name(name: &str) -> String {
    let name = name.strip_prefix("mlx5_").unwrap_or(name);
    let name = name.strip_prefix("ifc_").unwrap_or(name);
    name.strip_suffix("_bits").unwrap_or(name).to_owned()
}

/// Splits C into words and signs; comments and preprocessor lines are left out.
fn tokens(text: &str) -> Vec<String> {
    let mut code = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("/*") {
        code.push_str(&rest[..start]);
        code.push(' ');
        rest = rest[start..]
            .find("*/")
            .map_or("", |end| &rest[start + end + 2..]);
    }
    code.push_str(rest);
    let mut tokens = Vec::new();
    for line in code
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
    {
        let line = line.split("//").next().unwrap_or_default();
        let mut word = String::new();
        for sign in line.chars().chain([' ']) {
            if sign.is_ascii_alphanumeric() || sign == '_' {
                word.push(sign);
                continue;
            }
            if !word.is_empty() {
                tokens.push(std::mem::take(&mut word));
            }
            if !sign.is_whitespace() {
                tokens.push(sign.to_string());
            }
        }
    }
    tokens
}

/// Reads members up to the closing brace; with `bits`, every byte of C is a bit.
fn members(tokens: &[String], at: &mut usize, bits: bool) -> Result<Vec<Member>, String> {
    let mut list = Vec::new();
    loop {
        let token = tokens
            .get(*at)
            .ok_or("the header ends within a structure")?;
        match &**token {
            "}" => {
                *at += 1;
                return Ok(list);
            }
            // `struct_group(name, members);`: the members are in the structure itself, too.
            "struct_group" => {
                *at += 4;
                continue;
            }
            ")" => *at += 1,
            "u8" | "__be16" | "__be32" | "__be64" => {
                let mut name = word(tokens, *at + 1)?;
                *at += 2;
                let mut sizes = sizes(tokens, at)?;
                if word(tokens, *at)? == ":" {
                    // The compiler places bit-fields; they only move what follows.
                    name = "reserved".to_owned();
                    sizes.extend(number(word(tokens, *at + 1)?));
                    *at += 2;
                } else if !bits {
                    sizes.push(token.trim_start_matches("__be").parse().unwrap_or(8));
                }
                list.push(Member::Bits { name, sizes });
            }
            "DECLARE_FLEX_ARRAY" => {
                // The last word before the closing parenthesis.
                let end = tokens[*at..].iter().position(|token| token == ")");
                let end = *at + end.ok_or("a flexible array without an end")?;
                let name = word(tokens, end - 1)?;
                *at = end + 1;
                list.push(Member::Bits {
                    name,
                    sizes: vec![0],
                });
            }
            "struct" | "union" => {
                let union = token == "union";
                if tokens.get(*at + 1).is_some_and(|token| token == "{") {
                    *at += 2;
                    let members = members(tokens, at, bits)?;
                    let name = if word(tokens, *at)? == ";" {
                        String::new()
                    } else {
                        *at += 1;
                        word(tokens, *at - 1)?
                    };
                    list.push(Member::Inline {
                        union,
                        members,
                        name,
                    });
                } else {
                    let of = type_name(&word(tokens, *at + 1)?);
                    let name = word(tokens, *at + 2)?;
                    *at += 3;
                    let sizes = sizes(tokens, at)?;
                    list.push(Member::Known {
                        of,
                        name,
                        count: sizes.iter().product(),
                    });
                }
            }
            other => return Err(format!("{other:?} where a field should be")),
        }
        if word(tokens, *at)? != ";" {
            return Err(format!(
                "no semicolon after a field: {:?}",
                &tokens[*at - 3..=*at]
            ));
        }
        *at += 1;
    }
}

fn word(tokens: &[String], at: usize) -> Result<String, String> {
    tokens
        .get(at)
        .cloned()
        .ok_or_else(|| "the header ends within a field".to_owned())
}

/// Reads `[0x4]`, `[10][0x20]`, `[]`.
fn sizes(tokens: &[String], at: &mut usize) -> Result<Vec<u32>, String> {
    let mut sizes = Vec::new();
    while word(tokens, *at)? == "[" {
        let size = word(tokens, *at + 1)?;
        if size == "]" {
            sizes.push(0);
            *at += 2;
        } else {
            sizes.push(number(&size).ok_or_else(|| format!("no size: {size}"))?);
            *at += 3;
        }
    }
    Ok(sizes)
}

fn number(text: impl AsRef<str>) -> Option<u32> {
    let text = text.as_ref();
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn lay_out(raw: &Raw, name: &str) -> Result<Layout, String> {
    let (union, members) = raw
        .get(name)
        .ok_or_else(|| format!("the header has no structure {name}"))?;
    lay_out_members(raw, *union, members)
}

fn lay_out_members(raw: &Raw, union: bool, members: &[Member]) -> Result<Layout, String> {
    let mut layout = Layout::default();
    let mut next = 0;
    for member in members {
        let at = if union { 0 } else { next };
        let bits = match member {
            Member::Bits { name, sizes } => {
                let all: u32 = sizes.iter().product();
                let one = if sizes.len() > 1 {
                    sizes[sizes.len() - 1]
                } else {
                    all
                };
                if !name.starts_with("reserved") && !name.starts_with("rsvd") {
                    layout.fields.insert(name.clone(), (at, one));
                }
                all
            }
            Member::Known { of, name, count } => {
                let inner = match lay_out(raw, of) {
                    // Another header's, which moves nothing here.
                    Err(_) if union => Layout::default(),
                    inner => inner?,
                };
                // Fields of fields are left out: the inner structure has them.
                layout.fields.insert(name.clone(), (at, inner.bits));
                inner.bits * count
            }
            Member::Inline {
                union,
                members,
                name,
            } => {
                let inner = lay_out_members(raw, *union, members)?;
                for (field, (bit, width)) in inner.fields {
                    let field = if name.is_empty() {
                        field
                    } else {
                        format!("{name}.{field}")
                    };
                    layout.fields.insert(field, (at + bit, width));
                }
                inner.bits
            }
        };
        next = at + bits;
        layout.bits = layout.bits.max(next);
    }
    Ok(layout)
}
