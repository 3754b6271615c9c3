//! The commands beside `serve`.

use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use clap::CommandFactory as _;
use task_broker::config::Cli;

use super::{program, start_with};

fn run(args: &[&str]) -> Output {
    program().args(args).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn check(url: &str, more: &[&str]) -> (Option<i32>, String) {
    let output = run(&[&["healthcheck", "--url", url], more].concat());
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_broker_that_works_is_healthy_and_one_that_is_away_or_silent_is_not() {
    let broker = start_with(&["--store", "memory:"], "info", Stdio::null());
    let url = format!("http://{}", broker.address);
    for (url, more) in [(&url, &[][..]), (&format!("{url}/"), &[]), (&url, &["--live"])] {
        assert_eq!(check(url, more), (Some(0), String::new()));
    }
    drop(broker);
    let (code, said) = check(&url, &[]);
    assert_eq!(code, Some(1));
    assert!(said.contains(&url) && said.contains("refused"), "{said}");

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let began = Instant::now();
    let (code, said) = check(&format!("http://{}", silent.local_addr().unwrap()), &["--timeout-secs", "1"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("timed out"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_broker_that_says_no_is_not_healthy_and_its_words_are_repeated() {
    use std::io::{Read as _, Write as _};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for answer in ["HTTP/1.1 503 x\r\n\r\nthe store\u{1b}[2J is unavailable\n", "nonsense", ""] {
            let (mut stream, _) = listener.accept().unwrap();
            drop(stream.read(&mut [0; 1024]));
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    let (code, said) = check(&url, &[]);
    assert_eq!(
        (code, said),
        (Some(1), format!("task-broker: {url}/readyz: 503 the store [2J is unavailable\n"))
    );
    assert_eq!(check(&url, &[]).0, Some(1), "what is no HTTP");
    assert_eq!(check(&url, &[]).0, Some(1), "nothing at all");
}

#[test]
fn an_address_that_is_none_is_told() {
    for url in ["ftp://x", "https://", "https://a b", "127.0.0.1:8420", "http://", "http:// x", ""] {
        let (code, said) = check(url, &[]);
        assert_eq!(code, Some(1), "{url}");
        assert!(said.contains("--url"), "{said}");
    }
}

#[test]
fn the_page_of_a_command_has_its_flags_and_the_shells_know_them() {
    let program_page = text(&run(&["man"]));
    assert!(program_page.contains(".TH task-broker 1"), "{program_page}");
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        let page = text(&run(&["man", name]));
        assert!(page.contains(&format!(".TH task-broker-{name} 1")), "{page}");
        assert!(program_page.contains(&format!("task\\-broker\\-{name}(1)")), "{program_page}");
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            let written = format!("\\-\\-{}", flag.replace('-', "\\-"));
            assert!(page.contains(&written), "{flag} on the page of {name}");
            for shell in ["bash", "zsh", "fish"] {
                let script = text(&run(&["completions", shell]));
                assert!(script.contains(flag) && script.contains(name), "{flag} for {shell}");
            }
        }
    }
    assert!(!run(&["man", "no-such"]).status.success());
    assert!(!run(&["completions", "no-such"]).status.success());
}

#[test]
fn bash_completes_the_flags_of_each_subcommand() {
    let directory = tempfile::TempDir::new().unwrap();
    let script = directory.path().join("completion.bash");
    std::fs::write(&script, text(&run(&["completions", "bash"]))).unwrap();
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            let typed = format!(
                ". '{}'; COMP_WORDS=(task-broker {name} --{flag}); COMP_CWORD=2; \
                 _task__broker task-broker --{flag} {name}; echo \"${{COMPREPLY[@]}}\"",
                script.display()
            );
            let completed = std::process::Command::new("bash").args(["-c", &typed]).output().unwrap();
            let completed = String::from_utf8(completed.stdout).unwrap();
            let words: Vec<_> = completed.split_whitespace().collect();
            assert!(words.contains(&format!("--{flag}").as_str()), "{name} --{flag}: {completed}");
        }
    }
}

#[test]
fn a_token_that_cannot_be_written_is_an_error_and_no_panic() {
    let directory = tempfile::TempDir::new().unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "x".repeat(48)).unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let program = std::env::var_os("BROKER_UNDER_TEST").unwrap_or(env!("CARGO_BIN_EXE_task-broker").into());
    let done = std::process::Command::new(program)
        .args(["token", "--aud", "a", "--sub", "b", "--secret-file"])
        .arg(&secret)
        .stdout(full)
        .output()
        .unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left on device") && !said.contains("panicked"), "{said}");
}

#[test]
fn help_teaches_by_examples_that_the_program_understands() {
    for args in
        [&["--help"][..], &["serve", "--help"], &["healthcheck", "--help"], &["completions", "--help"]]
    {
        let help = text(&run(args));
        let (_, examples) = help.split_once("Examples:").unwrap_or_else(|| panic!("no examples: {help}"));
        let joined = examples.replace("\\\n", " ");
        let mut seen = 0;
        for line in joined.lines() {
            // Behind the variables that are set for it, up to what the shell does with its output.
            let words = line.split_whitespace().skip_while(|word| word.contains('='));
            let words: Vec<_> = words.take_while(|word| !["&&", ">", "|"].contains(word)).collect();
            if words.first() != Some(&"task-broker") {
                continue;
            }
            if let Err(error) = Cli::command().try_get_matches_from(&words) {
                panic!("{line}: {error}");
            }
            seen += 1;
        }
        assert!(seen >= 1, "{examples}");
    }
}
