// SPDX-License-Identifier: GPL-2.0

//! The resource for the Kernel Module Management operator is what its schema takes, and what the operator itself checks besides. The
//! types have the part of the schema that is used here, written after `config/crd/bases/kmm.sigs.x-k8s.io_modules.yaml` of
//! kubernetes-sigs/kernel-module-management, v2.6.0 and later, and the checks are after its `internal/webhook/module.go`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::support::{files, text, yaml};

const FILE: &str = "kubernetes/module/module.yaml";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The most bytes that name and namespace have together.
const MOST_NAMES: usize = 41;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Module {
    api_version: String,
    kind: String,
    metadata: Named,
    spec: Spec,
}

/// A reference to an object, or its metadata.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Spec {
    selector: BTreeMap<String, String>,
    module_loader: Loader,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Loader {
    container: Container,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Container {
    version: String,
    modprobe: Modprobe,
    kernel_mappings: Vec<Mapping>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Modprobe {
    module_name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Mapping {
    regexp: String,
    container_image: String,
    build: Build,
    sign: Sign,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Build {
    dockerfile_config_map: Named,
    build_args: Vec<BuildArg>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BuildArg {
    name: String,
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Sign {
    key_secret: Named,
    cert_secret: Named,
    files_to_sign: Vec<String>,
}

fn module() -> Module {
    yaml(FILE)
}

#[test]
fn the_operator_takes_it() {
    let module = module();
    assert_eq!(module.api_version, "kmm.sigs.x-k8s.io/v1beta1");
    assert_eq!(module.kind, "Module");
    assert!(module.metadata.name.len() + "mflow".len() <= MOST_NAMES);
    assert!(!module.spec.selector.is_empty());
    let container = module.spec.module_loader.container;
    assert_eq!(container.modprobe.module_name, "mflow");
    assert!(!container.kernel_mappings.is_empty());
    for mapping in container.kernel_mappings {
        let image = &mapping.container_image;
        let (_, tag) = image.rsplit_once(':').expect(image);
        // One image for each kernel and version: an image that is there is not built again.
        assert_eq!(tag, format!("{VERSION}-${{KERNEL_FULL_VERSION}}"));
        for file in &mapping.sign.files_to_sign {
            assert!(file.starts_with("/opt/"), "{file}");
            // The operator puts `_` for `+` into the variable, so no file has that name.
            assert!(!file.contains("KERNEL_FULL_VERSION"), "{file}");
        }
        assert!(!mapping.sign.files_to_sign.is_empty());
        assert_ne!(mapping.sign.key_secret.name, mapping.sign.cert_secret.name);
    }
}

/// Returns the kernels that a mapping is for, of those that releases of Debian have: a regular expression here is a list of these.
fn matches(regexp: &str, release: &str) -> bool {
    let mut rest = vec![release.to_owned()];
    let body = regexp
        .strip_prefix('^')
        .and_then(|body| body.strip_suffix('$'));
    let mut body = body.expect("the whole release is meant");
    while !body.is_empty() {
        let (tokens, behind) = token(body);
        body = behind;
        rest = rest.iter().flat_map(|text| tokens.ends(text)).collect();
    }
    rest.iter().any(String::is_empty)
}

/// A part of a regular expression: one of several texts, or digits.
enum Token {
    Digits,
    OneOf(Vec<String>),
}

impl Token {
    /// Returns what may be left of a text behind this.
    fn ends(&self, text: &str) -> Vec<String> {
        match self {
            Self::Digits => {
                let digits = text.bytes().take_while(u8::is_ascii_digit).count();
                (1..=digits).map(|end| text[end..].to_owned()).collect()
            }
            Self::OneOf(all) => {
                let ends = all.iter().filter_map(|one| text.strip_prefix(&**one));
                ends.map(str::to_owned).collect()
            }
        }
    }
}

/// Takes the first part off.
fn token(body: &str) -> (Token, &str) {
    if let Some(rest) = body.strip_prefix(r"\d+") {
        return (Token::Digits, rest);
    }
    if let Some(group) = body.strip_prefix('(') {
        let (list, rest) = group.split_once(')').expect("a group ends");
        let mut all: Vec<String> = list.split('|').map(|one| one.replace('\\', "")).collect();
        let behind = rest.strip_prefix('?');
        if behind.is_some() {
            all.push(String::new());
        }
        return (Token::OneOf(all), behind.unwrap_or(rest));
    }
    let one = body.trim_start_matches('\\');
    let (first, rest) = one.split_at(1);
    let special = ['.', '+', '*', '?', '[', '{', '|'];
    assert!(one.len() < body.len() || !first.contains(special), "{body}");
    (Token::OneOf(vec![first.to_owned()]), rest)
}

/// Each kernel for which there is a module is in one mapping, and no other kernel is in any.
#[test]
fn kernels_are_those_that_the_module_is_made_for() {
    let mappings = module().spec.module_loader.container.kernel_mappings;
    let debian = |release: &str| -> Vec<String> {
        let of_it = mappings.iter().filter(|one| matches(&one.regexp, release));
        let args = of_it.flat_map(|one| &one.build.build_args);
        let releases = args.filter(|arg| arg.name == "DEBIAN");
        releases.map(|arg| arg.value.clone()).collect()
    };
    for (release, codename) in [
        ("6.1.0-37-amd64", "bookworm"),
        ("6.1.0-37-cloud-amd64", "bookworm"),
        ("6.12.117+deb12-amd64", "bookworm"),
        ("6.12.48+deb13-amd64", "trixie"),
        ("6.12.48+deb13-cloud-amd64", "trixie"),
        ("7.3.4+deb13-amd64", "trixie"),
    ] {
        assert_eq!(debian(release), [codename], "{release}");
    }
    for release in [
        "6.12.48+deb13-rt-amd64",
        "6.12.48+deb13-arm64",
        "6.10.2+deb13-amd64",
        "6.1.0-37-amd64x",
        "6.120.1+deb13-amd64",
        "6.8.0-45-generic",
    ] {
        assert!(debian(release).is_empty(), "{release}");
    }
    // The series are those of the module.
    let series = include_str!("../../../src/kernel/mod.rs");
    assert!(series.contains("STOCK_VERSIONS: &[&str] = &[\"6.1\", \"6.12\", \"7.3\"];"));
}

#[test]
fn the_build_gets_what_it_asks_for() {
    let recipe = text("kubernetes/module/Containerfile");
    let asked: Vec<&str> = recipe
        .lines()
        .filter_map(|line| line.strip_prefix("ARG "))
        .collect();
    // The operator gives the last one.
    assert_eq!(asked, ["MFLOW_IMAGE", "DEBIAN", "KERNEL_FULL_VERSION"]);
    let pods = text("kubernetes/mflow/daemonset.yaml");
    for mapping in module().spec.module_loader.container.kernel_mappings {
        let given: Vec<&str> = mapping
            .build
            .build_args
            .iter()
            .map(|arg| &*arg.name)
            .collect();
        assert_eq!(given, asked[..2]);
        assert_eq!(
            mapping.build.dockerfile_config_map.name,
            "mflow-module-build"
        );
        let image = &mapping.build.build_args[0].value;
        assert!(pods.contains(&format!("image: {image}\n")), "{image}");
    }
    let made = text("kubernetes/module/kustomization.yaml");
    assert!(
        made.contains("- name: mflow-module-build\n    files:\n      - dockerfile=Containerfile")
    );
    assert!(made.contains("disableNameSuffixHash: true"));
    // Both recipes agree on where the package is, and the module's own recipe has that script.
    let package = "/usr/share/mflow/mflow-dkms.deb";
    assert!(recipe.contains(&format!("COPY --from=pods {package} ")));
    assert!(text("image/Containerfile").contains(&format!("mflow-dkms_*_amd64.deb {package}\n")));
    let packed = include_str!("../../../src/dkms.rs");
    assert!(recipe.contains("RUN sh ./dkms-build ") && packed.contains("/dkms-build\""));
}

/// Nothing names another version than that of this project.
#[test]
fn versions_are_those_of_the_project() {
    let container = module().spec.module_loader.container;
    assert_eq!(container.version, VERSION);
    let mut texts = files("kubernetes", ".yaml");
    texts.extend(files("", ".md"));
    let mut named = 0;
    for file in texts {
        let text = text(&file);
        // Images, and the label with which the operator loads a version.
        for before in [
            "registry.example/mflow:",
            "registry.example/mflow-module:",
            ".mflow.mflow=",
        ] {
            for (_, behind) in text
                .match_indices(before)
                .map(|(place, _)| text[place..].split_at(before.len()))
            {
                assert!(behind.starts_with(VERSION), "{file}: {before}{behind:.9}");
                named += 1;
            }
        }
    }
    assert!(named > 10, "{named}");
}
