//! What README.md shows is what the program does: the settings, the tour with curl, the example with tokens.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]
#![allow(clippy::needless_pass_by_value, reason = "the harness takes values as they are written")]

mod harness;

use std::path::Path;
use std::process::{Command, Stdio};

use clap::{Arg, CommandFactory as _};
use serde_json::Value;
use task_broker::config::Cli;

use harness::{Auth, Broker, BrokerOptions, Store, token};

const README: &str = include_str!("../README.md");

/// The address in the README, which stands for that of the broker under test.
const ADDRESS: &str = "127.0.0.1:8420";

/// The code blocks of this language behind the heading, up to the next heading.
fn blocks<'a>(heading: &str, language: &str) -> Vec<&'a str> {
    let (_, section) =
        README.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let section = section.split("\n## ").next().unwrap();
    let opening = format!("```{language}\n");
    section.split(&opening).skip(1).map(|rest| rest.split("```").next().unwrap().trim_end()).collect()
}

/// The table of settings as it must be.
fn settings() -> String {
    let mut command = Cli::command();
    let serve = command.find_subcommand_mut("serve").unwrap();
    let head = ["| flag | variable | default | meaning |".to_owned(), "|---|---|---|---|".to_owned()];
    head.into_iter().chain(serve.get_arguments().map(row)).collect::<Vec<_>>().join("\n")
}

/// The line of one setting.
fn row(setting: &Arg) -> String {
    let takes_value = setting.get_action().takes_values();
    let value = setting.get_value_names().filter(|_| takes_value);
    let value = value.map(|names| format!(" {}", names[0])).unwrap_or_default();
    let default = setting.get_default_values().first().map(|value| format!("`{}`", value.display()));
    let mut meaning = setting.get_help().expect("each setting is explained").to_string();
    let words: Vec<_> =
        setting.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if takes_value && !words.is_empty() {
        meaning = format!("{meaning}. One of {}", words.join(", "));
    }
    format!(
        "| `--{}{value}` | `{}` | {} | {} |",
        setting.get_long().expect("settings are flags"),
        setting.get_env().expect("each setting has a variable").display(),
        default.unwrap_or_else(|| "-".into()),
        meaning.replace('|', "\\|"),
    )
}

#[test]
fn the_table_of_settings_is_the_programs_own() {
    let expected = settings();
    assert!(
        README.contains(&format!("\n{expected}\n\n")),
        "the table of settings in README.md must be:\n{expected}"
    );
}

#[test]
fn the_variable_of_a_flag_has_its_name() {
    let mut command = Cli::command();
    for setting in command.find_subcommand_mut("serve").unwrap().get_arguments() {
        let name = setting.get_long().unwrap().replace('-', "_").to_uppercase();
        assert_eq!(setting.get_env().unwrap().to_str().unwrap(), format!("TASK_BROKER_{name}"));
    }
}

/// Whether `curl` can be run. Where CI runs it must.
fn has_curl() -> bool {
    let found =
        Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok_and(|it| it.success());
    assert!(found || std::env::var_os("CI").is_none(), "curl is missing");
    found
}

/// Pastes lines of the README into a shell, and gives what it prints.
fn paste(lines: &str, broker: &Broker, directory: &Path) -> String {
    let lines = lines.replace(ADDRESS, &broker.address().to_string());
    // What the tour shows on the way goes to standard error.
    let script = format!("exec 2>&1\n{lines}\n");
    let program = Path::new(env!("CARGO_BIN_EXE_task-broker")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let shell = Command::new("sh")
        .args(["-euc", &script])
        .current_dir(directory)
        .env("PATH", path)
        .env("no_proxy", "*")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let output = String::from_utf8(shell.stdout).unwrap();
    assert!(shell.status.success(), "{output}");
    output
}

/// The same text without what differs from run to run: ids, times, and what is left of the TTL.
fn without_chance(line: &str) -> Value {
    fn clean(value: &mut Value) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    let chance =
                        ["taskId", "createdAt", "lastUpdatedAt", "remainingMs"].contains(&name.as_str());
                    if chance { *value = Value::Null } else { clean(value) }
                }
            }
            Value::Array(elements) => elements.iter_mut().for_each(clean),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    clean(&mut value);
    value
}

#[test]
fn the_tour_works_as_printed() {
    if !has_curl() {
        return;
    }
    let [tour] = blocks("A tour with curl", "sh")[..] else { panic!("one block") };
    let [printed] = blocks("A tour with curl", "json")[..] else { panic!("one block") };
    assert_eq!(tour.lines().count(), 3);
    let broker = BrokerOptions::new(Store::Sled).auth(Auth::Off).start();
    let directory = tempfile::tempdir().unwrap();
    let output = paste(tour, &broker, directory.path());
    let values = |text: &str| text.lines().map(without_chance).collect::<Vec<_>>();
    assert_eq!(values(&output), values(printed), "{output}");
}

#[test]
fn the_example_with_tokens_works() {
    if !has_curl() {
        return;
    }
    let [make_secret, example] = blocks("With tokens", "sh")[..] else { panic!("two blocks") };
    assert!(make_secret.contains(&format!("--jwt-audience {}", token::AUDIENCE)));
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Required).start();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("secret"), token::SECRET).unwrap();
    let output = paste(example, &broker, directory.path());
    let answer: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    assert_eq!(answer["result"]["status"], "working", "{output}");
}

#[test]
fn the_two_commands_are_there_once() {
    let commands: Vec<_> = blocks("Two commands", "sh");
    assert_eq!(commands, ["cargo run --release -- serve", "cargo test --workspace --locked"]);
}

#[test]
fn files_that_the_readme_names_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for link in README.split("](").skip(1) {
        let target = link.split(')').next().unwrap();
        assert!(root.join(target).exists(), "{target}");
    }
}
