//! The Dockerfile and the examples of deployment: they name flags, paths and ports that there are, and leave the broker
//! the time that it asks for. scripts/image.sh builds and runs the image.

use clap::{Arg, CommandFactory as _};
use task_broker::config::Cli;
use yaml_rust2::{Yaml, YamlLoader};

const DOCKERFILE: &str = include_str!("../../Dockerfile");
const COMPOSE: &str = include_str!("../../examples/deploy/compose.yaml");
const KUBERNETES: &str = include_str!("../../examples/deploy/kubernetes.yaml");
const SYSTEMD: &str = include_str!("../../examples/deploy/task-broker.service");
const ROUTER: &str = include_str!("../../src/http/mod.rs");

/// The paths of the router.
fn paths() -> Vec<&'static str> {
    ROUTER.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

/// Fails unless the program understands these words, and gives its value of `--drain-secs`.
#[track_caller]
fn understood<'a>(words: impl IntoIterator<Item = &'a str>) -> u64 {
    let words: Vec<_> = ["task-broker"].into_iter().chain(words).collect();
    let matches =
        Cli::command().try_get_matches_from(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    let (_, command) = matches.subcommand().unwrap();
    command.try_get_one::<u64>("drain_secs").ok().flatten().copied().unwrap_or_default()
}

#[track_caller]
fn assert_variable(name: &str) {
    let mut command = Cli::command();
    let serve = command.find_subcommand_mut("serve").unwrap();
    assert!(
        serve.get_arguments().filter_map(Arg::get_env).any(|known| known == name),
        "no setting has {name}"
    );
}

fn document(text: &str) -> Yaml {
    let mut documents = YamlLoader::load_from_str(text).unwrap();
    assert_eq!(documents.len(), 1);
    documents.remove(0)
}

fn words(list: &Yaml) -> Vec<&str> {
    list.as_vec()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap_or_else(|| panic!("no text: {word:?}")))
        .collect()
}

/// `"20s"` and `20`.
fn seconds(value: &Yaml) -> u64 {
    let text = value.as_str().map(|text| text.trim_end_matches('s').parse().unwrap());
    text.unwrap_or_else(|| u64::try_from(value.as_i64().unwrap()).unwrap())
}

/// The instructions of the Dockerfile without comments, each on one line.
fn instructions() -> Vec<(&'static str, String)> {
    let lines: Vec<_> = DOCKERFILE.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let joined = Box::leak(lines.join("\n").replace("\\\n", " ").into_boxed_str());
    let joined = joined.lines().filter(|line| !line.trim().is_empty());
    joined
        .map(|line| line.split_once(' ').unwrap())
        .map(|(word, rest)| (word, rest.trim().to_owned()))
        .collect()
}

/// The one instruction of this name in the last stage.
#[track_caller]
fn last_stage(name: &str) -> String {
    let all = instructions();
    let begin = all.iter().rposition(|(word, _)| *word == "FROM").unwrap();
    let found: Vec<_> = all[begin..].iter().filter(|(word, _)| *word == name).collect();
    let [(_, rest)] = found[..] else { panic!("one {name}: {found:?}") };
    rest.clone()
}

fn exec_form(text: &str) -> Vec<String> {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not the exec form: {text}: {error}"))
}

#[test]
fn the_image_is_pinned_private_and_checks_itself() {
    let stages: Vec<_> =
        instructions().into_iter().filter(|(word, _)| *word == "FROM").map(|(_, from)| from).collect();
    assert!(stages.len() >= 2, "a stage to build and a stage to run");
    for from in &stages {
        let (_, tag) =
            from.split(' ').next().unwrap().split_once(':').unwrap_or_else(|| panic!("no tag: {from}"));
        assert!(tag != "latest" && tag.starts_with(|first: char| first.is_ascii_digit()), "{from}");
    }
    let toolchain = stages[0].strip_prefix("rust:").unwrap();
    assert!(
        toolchain.starts_with(env!("CARGO_PKG_RUST_VERSION")),
        "{toolchain} is not what Cargo.toml asks for"
    );
    assert!(toolchain.split('-').next().unwrap().split('.').count() == 3, "the whole version: {toolchain}");
    let user: Vec<_> = last_stage("USER").split(':').map(|id| id.parse::<u32>().unwrap()).collect();
    assert!(user.iter().all(|id| *id > 0), "numbers, so that Kubernetes can tell that it is not root");
    let entry = exec_form(&last_stage("ENTRYPOINT"));
    let command = exec_form(&last_stage("CMD"));
    assert_eq!(entry, ["/usr/local/bin/task-broker"]);
    understood(command.iter().map(String::as_str));
    let check = last_stage("HEALTHCHECK");
    let (_, check) = check.split_once("CMD ").unwrap();
    let check = exec_form(check);
    assert_eq!(check[0], entry[0]);
    understood(check[1..].iter().map(String::as_str));
    assert_eq!(last_stage("VOLUME"), "/data");
    for setting in last_stage("ENV").split_whitespace() {
        assert_variable(setting.split('=').next().unwrap());
    }
    let lower = DOCKERFILE.to_lowercase();
    for word in ["arg ", "password", "copy --chmod=777", "curl ", "| sh", "sudo", "add http"] {
        assert!(!lower.lines().any(|line| !line.starts_with('#') && line.contains(word)), "{word}");
    }
    let ignored = include_str!("../../.dockerignore");
    for name in [".git", "data", "secret", "target"] {
        assert!(ignored.lines().any(|line| line == name), "{name} must not go into the image");
    }
    // cargo reads the manifests of all members, whatever it is asked to build.
    let members = include_str!("../../Cargo.toml").split_once("members = [").unwrap().1;
    let members: Vec<_> = members.split_once(']').unwrap().0.split(',').collect();
    assert!(members.len() >= 5, "{members:?}");
    for member in members.iter().map(|member| member.trim().trim_matches('"')) {
        let hidden = |line: &&str| member == *line || member.starts_with(&format!("{line}/"));
        assert_eq!(ignored.lines().find(hidden), None, "the build needs {member}");
    }
}

#[test]
fn compose_uses_what_there_is() {
    let compose = document(COMPOSE);
    let service = &compose["services"]["task-broker"];
    let drain = understood(words(&service["command"]));
    assert!(seconds(&service["stop_grace_period"]) > drain && drain > 0);
    let check = words(&service["healthcheck"]["test"]);
    assert_eq!(check[..2], ["CMD", "/usr/local/bin/task-broker"]);
    understood(check[2..].iter().copied());
    assert_eq!(service["read_only"].as_bool(), Some(true));
    assert_eq!(words(&service["cap_drop"]), ["ALL"]);
    for (name, _) in service["environment"].as_hash().unwrap() {
        let name = name.as_str().unwrap();
        if name != "RUST_LOG" {
            assert_variable(name);
        }
    }
    let volume = words(&service["volumes"])[0].split_once(':').unwrap();
    assert_eq!(volume.1, last_stage("VOLUME"));
    assert!(compose["volumes"].as_hash().unwrap().contains_key(&Yaml::String(volume.0.into())));
    let port = last_stage("EXPOSE");
    assert!(words(&service["ports"])[0].ends_with(&format!(":{port}")));
    let secret = words(&service["secrets"])[0];
    assert!(!compose["secrets"][secret].is_badvalue());
    assert!(words(&service["command"]).contains(&format!("/run/secrets/{secret}").as_str()));
}

#[test]
fn kubernetes_uses_what_there_is() {
    let set = document(KUBERNETES);
    let pod = &set["spec"]["template"];
    let spec = &pod["spec"];
    let broker = &spec["initContainers"][0];
    assert_eq!(broker["restartPolicy"].as_str(), Some("Always"), "a sidecar");
    let drain = understood(words(&broker["args"]));
    assert!(seconds(&spec["terminationGracePeriodSeconds"]) > drain && drain > 0);
    let port = &broker["ports"][0];
    let listen = words(&broker["args"]).into_iter().find_map(|arg| arg.strip_prefix("--listen=")).unwrap();
    assert!(listen.ends_with(&format!(":{}", port["containerPort"].as_i64().unwrap())));
    for (probe, path) in
        [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
    {
        let get = &broker[probe]["httpGet"];
        assert_eq!(get["path"].as_str(), Some(path), "{probe}");
        assert!(paths().contains(&path));
        assert_eq!(get["port"], port["name"], "{probe}");
    }
    let annotations = &pod["metadata"]["annotations"];
    assert!(paths().contains(&annotations["prometheus.io/path"].as_str().unwrap()));
    let user: Vec<_> = last_stage("USER").split(':').map(|id| id.parse::<i64>().unwrap()).collect();
    let security = &spec["securityContext"];
    assert_eq!(security["runAsNonRoot"].as_bool(), Some(true));
    assert_eq!(
        (security["runAsUser"].as_i64(), security["fsGroup"].as_i64()),
        (Some(user[0]), Some(user[1]))
    );
    assert_eq!(broker["securityContext"]["readOnlyRootFilesystem"].as_bool(), Some(true));
    assert_eq!(set["spec"]["replicas"].as_i64(), Some(1), "one process owns a data directory");
}

#[test]
fn systemd_uses_what_there_is() {
    let value = |name: &str| {
        let mut found = SYSTEMD.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let first = found.next().unwrap_or_else(|| panic!("no {name}"));
        first.to_owned()
    };
    let start = value("ExecStart");
    let mut words = start.split(' ');
    assert_eq!(words.next(), Some("/usr/local/bin/task-broker"));
    let drain = understood(words);
    assert!(value("TimeoutStopSec").parse::<u64>().unwrap() > drain && drain > 0);
    assert!(start.contains(&format!("sled:/var/lib/{}", value("StateDirectory"))));
    assert_eq!((value("StateDirectoryMode"), value("UMask")), ("0700".into(), "0077".into()));
    for name in ["DynamicUser", "NoNewPrivileges", "PrivateTmp"] {
        assert_eq!(value(name), "yes", "{name}");
    }
    assert_eq!(value("ProtectSystem"), "strict");
}
