// SPDX-License-Identifier: GPL-2.0

//! Resources are what Kubernetes takes: its own API, as types, reads them and has nothing left over. What they name is there.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, Namespace, PodSpec};
use mflow_command::file::Settings;
use mflow_hike_manager::configuration::file::parse;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::support::{path, text, yaml};

/// Folders with a kustomization, of which each makes a service.
const SERVICES: &[&str] = &["kubernetes/mflow", "kubernetes/canary", "kubernetes/hike"];

/// The keys of a kustomization that are used here, as kustomize 5 documents them (kubernetes-sigs/kustomize, api/types).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Kustomization {
    api_version: String,
    kind: String,
    namespace: String,
    name_suffix: Option<String>,
    resources: Vec<String>,
    #[serde(default)]
    labels: Vec<Labels>,
    config_map_generator: Vec<Generator>,
    generator_options: Option<GeneratorOptions>,
    #[serde(default)]
    patches: Vec<Patch>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Labels {
    pairs: BTreeMap<String, String>,
    include_selectors: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Generator {
    name: String,
    behavior: Option<String>,
    files: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct GeneratorOptions {
    disable_name_suffix_hash: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    target: BTreeMap<String, String>,
    patch: String,
}

/// A step of a patch (RFC 6902).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    op: String,
    path: String,
    value: Value,
}

/// Reads a resource. Fails with a field that its type does not have, or that is of another type.
fn resource<T: DeserializeOwned + Serialize>(file: &str) -> T {
    let given: Value = yaml(file);
    let read: T =
        serde_json::from_value(given.clone()).unwrap_or_else(|error| panic!("{file}: {error}"));
    let known = serde_json::to_value(&read).expect("JSON");
    let lost = lost(&given, &known, "");
    assert!(
        lost.is_empty(),
        "{file} has what Kubernetes does not know: {lost:?}"
    );
    read
}

/// Returns the paths of values that are not in what was read.
fn lost(given: &Value, known: &Value, at: &str) -> Vec<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => given
            .iter()
            .flat_map(|(key, value)| {
                let at = format!("{at}/{key}");
                match known.get(key) {
                    Some(known) => lost(value, known, &at),
                    None => vec![at],
                }
            })
            .collect(),
        (Value::Array(given), Value::Array(known)) if given.len() == known.len() => {
            let pairs = given.iter().zip(known).enumerate();
            pairs
                .flat_map(|(number, (given, known))| lost(given, known, &format!("{at}/{number}")))
                .collect()
        }
        (given, known) if given == known => Vec::new(),
        _ => vec![at.to_owned()],
    }
}

fn kustomization(folder: &str) -> Kustomization {
    let kustomization: Kustomization = yaml(&format!("{folder}/kustomization.yaml"));
    assert_eq!(kustomization.api_version, "kustomize.config.k8s.io/v1beta1");
    assert_eq!(kustomization.kind, "Kustomization");
    kustomization
}

fn pod(set: &DaemonSet) -> &PodSpec {
    let spec = set.spec.as_ref().expect("a spec");
    spec.template.spec.as_ref().expect("a pod")
}

/// Returns the mount below which a path of a container is, and the name of its volume.
fn volume_of<'a>(container: &'a Container, path: &str) -> Option<&'a str> {
    let mounts = container.volume_mounts.iter().flatten();
    let mut mounts: Vec<_> = mounts
        .filter(|mount| std::path::Path::new(path).starts_with(&mount.mount_path))
        .collect();
    mounts.sort_by_key(|mount| mount.mount_path.len());
    Some(&mounts.last()?.name)
}

#[test]
fn a_field_that_is_not_known_is_found() {
    let pod = |text: &str| {
        let given: Value = serde_yaml_ng::from_str(text).expect("YAML");
        let read: PodSpec = serde_json::from_value(given.clone()).expect("a pod");
        lost(&given, &serde_json::to_value(read).expect("JSON"), "")
    };
    let good = "containers: [{name: a, image: b}]\nhostNetwork: true";
    assert!(pod(good).is_empty());
    let bad = "containers: [{name: a, image: b, comand: [c]}]\nhostnetwork: true";
    assert_eq!(pod(bad), ["/containers/0/comand", "/hostnetwork"]);
}

#[test]
fn the_namespace_lets_pods_reach_into_the_host() {
    let namespace: Namespace = resource("kubernetes/namespace.yaml");
    let labels = namespace.metadata.labels.expect("labels");
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged");
    for folder in SERVICES.iter().chain(&["kubernetes/module"]) {
        assert_eq!(
            Some(kustomization(folder).namespace),
            namespace.metadata.name,
            "{folder}"
        );
    }
}

#[test]
fn kustomizations_name_files_that_are_there() {
    // Its resource names the map, and kustomize does not put another name there.
    let module = kustomization("kubernetes/module").generator_options;
    assert!(module.is_some_and(|options| options.disable_name_suffix_hash));
    for folder in SERVICES.iter().chain(&["kubernetes/module"]) {
        let kustomization = kustomization(folder);
        for file in &kustomization.resources {
            assert!(path(folder).join(file).exists(), "{folder}: {file}");
        }
        for generator in &kustomization.config_map_generator {
            for file in &generator.files {
                let file = file.split_once('=').map_or(&**file, |(_, file)| file);
                assert!(path(folder).join(file).is_file(), "{folder}: {file}");
            }
        }
    }
}

/// Knobs that are refused would be found on the first node. They are found here.
#[test]
fn knobs_and_configurations_are_taken() {
    for file in [
        "kubernetes/mflow/mflow.conf",
        "kubernetes/canary/mflow.conf",
    ] {
        let settings =
            Settings::parse(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(settings.names_devices(), "{file}");
    }
    let file = "kubernetes/hike/hike.toml";
    let configuration = parse(file.as_ref(), &text(file)).unwrap_or_else(|error| panic!("{error}"));
    assert!(!configuration.monitors.is_empty() && !configuration.sessions.is_empty());
}

#[test]
fn pods_have_what_their_commands_name() {
    for (folder, configuration) in [
        ("kubernetes/mflow", "mflow-conf"),
        ("kubernetes/hike", "hike-conf"),
    ] {
        let set: DaemonSet = resource(&format!("{folder}/daemonset.yaml"));
        let pod = pod(&set);
        let volumes: BTreeSet<&str> = pod
            .volumes
            .iter()
            .flatten()
            .map(|volume| &*volume.name)
            .collect();
        let generators = kustomization(folder).config_map_generator;
        let [generator] = &generators[..] else {
            panic!("{folder}: one generator is expected");
        };
        assert_eq!(generator.name, configuration);
        let named = pod
            .volumes
            .iter()
            .flatten()
            .filter_map(|volume| volume.config_map.as_ref());
        let named: Vec<&str> = named.map(|map| &*map.name).collect();
        assert_eq!(named, [configuration]);
        for container in &pod.containers {
            for mount in container.volume_mounts.iter().flatten() {
                assert!(volumes.contains(&*mount.name), "{folder}: {}", mount.name);
            }
            let command = container.command.as_ref().expect("a command");
            // A name without a folder is found in the search path, or is none of the paths that follow.
            for word in command.iter().skip(1).filter(|word| word.starts_with('/')) {
                let volume = volume_of(container, word)
                    .unwrap_or_else(|| panic!("{folder}: nothing is mounted for {word}"));
                if volume == "conf" {
                    let name = word.rsplit('/').next().expect("a name");
                    assert!(generator.files.iter().any(|file| file == name), "{word}");
                }
            }
            if let Some(script) = command[0].strip_prefix("/usr/lib/mflow/") {
                assert!(path("image/node").join(script).is_file(), "{script}");
            }
        }
        let strategy = set
            .spec
            .as_ref()
            .and_then(|spec| spec.update_strategy.as_ref());
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        assert!(rolling.is_some_and(|one| one.max_unavailable.is_some()));
    }
}

/// The pods of canaries are those of all nodes, on other nodes.
#[test]
fn canaries_are_other_nodes_than_all_others() {
    let set: DaemonSet = resource("kubernetes/mflow/daemonset.yaml");
    let kustomization = kustomization("kubernetes/canary");
    assert_eq!(kustomization.resources, ["../mflow"]);
    assert_eq!(kustomization.name_suffix.as_deref(), Some("-canary"));
    // The selectors of two sets must not match the same pods.
    let selector = set.spec.as_ref().map(|spec| &spec.selector);
    let selector = selector.and_then(|selector| selector.match_labels.as_ref());
    assert_eq!(selector.expect("labels")["mflow-knobs"], "all");
    let [labels] = &kustomization.labels[..] else {
        panic!("one group of labels is expected");
    };
    assert!(labels.include_selectors);
    assert_eq!(labels.pairs["mflow-knobs"], "canary");
    let [generator] = &kustomization.config_map_generator[..] else {
        panic!("one generator is expected");
    };
    assert_eq!(generator.behavior.as_deref(), Some("replace"));
    assert_eq!(generator.name, "mflow-conf");
    assert!(kustomization.generator_options.is_none());
    let [patch] = &kustomization.patches[..] else {
        panic!("one patch is expected");
    };
    assert_eq!(patch.target["kind"], "DaemonSet");
    assert_eq!(Some(&patch.target["name"]), set.metadata.name.as_ref());
    let steps: Vec<Step> = serde_yaml_ng::from_str(&patch.patch).expect("a patch");
    let [Step { op, path, value }] = &steps[..] else {
        panic!("one step is expected");
    };
    assert_eq!((&**op, value), ("replace", &Value::from("In")));
    let whole = serde_json::to_value(&set).expect("JSON");
    assert_eq!(whole.pointer(path), Some(&Value::from("NotIn")));
    let expression = whole.pointer(path.trim_end_matches("/operator"));
    let expression = expression.expect("the expression of the operator");
    assert_eq!(expression["key"], "mflow-knobs");
    assert_eq!(expression["values"], serde_json::json!(["canary"]));
}
