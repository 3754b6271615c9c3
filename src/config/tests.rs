use super::*;
use crate::clock::Clock;

fn serve(flags: &[&str]) -> Serve {
    let flags = ["task-broker", "serve"].iter().chain(flags);
    match Cli::try_parse_from(flags).unwrap().command {
        Command::Serve(serve) => *serve,
        _ => unreachable!(),
    }
}

fn error(flags: &[&str]) -> String {
    serve(flags).settings(&Clock::system()).unwrap_err().to_string()
}

#[test]
fn the_command_line_is_sound() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}

#[test]
fn nothing_but_serve_is_a_complete_configuration() {
    let serve = serve(&[]);
    assert_eq!(serve.store, StoreUrl::Sled("./data".into()));
    let settings = serve.settings(&Clock::system()).unwrap();
    assert!(settings.warnings.is_empty());
    assert_eq!(settings.auth.mode(), AuthMode::Off);
}

#[test]
fn what_is_no_value_of_a_flag_is_told_with_its_name() {
    for (flags, name, reason) in [
        (&["--listen", "broker"][..], "--listen", "an IP address and a port"),
        (&["--listen", "localhost:8420"], "--listen", "an IP address and a port"),
        (&["--drain-secs", "-1"], "--drain-secs", "invalid digit"),
    ] {
        let flags: Vec<_> = ["task-broker", "serve"].iter().chain(flags).collect();
        let error = Cli::try_parse_from(&flags).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(reason), "{flags:?}: {error}");
    }
}

#[test]
fn an_export_says_where_from_and_once() {
    let parsed = |flags: &[&str]| Cli::try_parse_from(["task-broker", "export"].iter().chain(flags));
    let neither = parsed(&[]).unwrap_err().to_string();
    assert!(neither.contains("--store") && neither.contains("--url"), "{neither}");
    assert!(parsed(&["--store", "sled:x", "--url", "http://x"]).is_err());
    assert!(parsed(&["--store", "sled:x"]).is_ok() && parsed(&["--url", "http://x"]).is_ok());
}

#[test]
fn an_error_names_the_flag() {
    for (flags, flag) in [
        (&["--default-ttl-ms", "10", "--max-ttl-ms", "5"][..], "--default-ttl-ms"),
        (&["--default-poll-interval-ms", "99"], "--default-poll-interval-ms"),
        (&["--max-body-bytes", "2048", "--max-payload-bytes", "4096"], "--max-body-bytes"),
        (&["--max-requests", "0"], "--max-requests"),
        (&["--rate-limit-per-subject", "0"], "--rate-limit-per-subject"),
        (&["--no-compaction", "--compact-above-bytes", "1"], "--no-compaction"),
        (&["--default-ttl-ms", "0"], "--default-ttl-ms"),
        (&["--quota-tasks-per-owner", "0"], "--quota-tasks-per-owner"),
        (&["--cache-bytes", "99999999999999"], "--cache-bytes"),
        (&["--store", "memory:", "--existing-store-only"], "--existing-store-only"),
        (&["--listen", "0.0.0.0:0"], "--allow-anonymous-network"),
        (&["--allow-origin", "*"], "--allow-origin"),
        (&["--allow-origin", "https://a.example,null"], "--allow-origin"),
        (&["--allow-origin", "https://a.example/"], "--allow-origin"),
        (&["--allow-origin", "HTTPS://A.EXAMPLE"], "--allow-origin"),
        (&["--allow-origin", ""], "--allow-origin"),
        (&["--auth", "required"], "--jwt-secret-file"),
        (&["--jwt-secret-file", "/nonexistent/secret"], "--jwt-secret-file"),
        (&["--jwt-public-key-file", "/nonexistent/key"], "--jwt-public-key-file"),
        (&["--jwks-file", "/nonexistent/keys"], "--jwks-file"),
        (&["--jwks-url", "http://issuer.example/"], "--jwks-url"),
        (&["--jwks-url", "https://issuer.example/", "--jwks-ca-file", "/nonexistent/ca"], "--jwks-ca-file"),
        (&["--jwks-url", "http://127.0.0.1/"], "--jwt-audience"),
        (&["--jwks-url", "http://127.0.0.1/", "--auth", "off"], "--jwks-url"),
        (&["--jwks-ca-file", "/nonexistent/ca"], "--jwks-ca-file"),
        (&["--jwks-cooldown-secs", "0"], "--jwks-cooldown-secs"),
        (&["--jwks-refresh-secs", "5"], "--jwks-refresh-secs"),
        (&["--tls-cert", "/nonexistent/cert"], "--tls-key"),
        (&["--tls-key", "/nonexistent/key"], "--tls-cert"),
        (&["--tls-cert", "/nonexistent/cert", "--tls-key", "/nonexistent/key"], "--tls-cert"),
    ] {
        let error = error(flags);
        assert!(error.contains(flag), "{error}");
    }
}

#[test]
fn origins_of_pages_are_taken_as_browsers_send_them() {
    for origin in ["https://a.example", "http://localhost:8080", "http://[::1]:3000"] {
        assert!(serve(&["--allow-origin", origin]).settings(&Clock::system()).is_ok(), "{origin}");
    }
}

#[test]
fn an_open_door_must_be_meant() {
    let settings =
        serve(&["--listen", "0.0.0.0:0", "--allow-anonymous-network"]).settings(&Clock::system()).unwrap();
    assert_eq!(settings.warnings.len(), 1);
    assert!(serve(&["--listen", "[::1]:0"]).settings(&Clock::system()).is_ok());
}

#[test]
fn stores_are_named_by_their_kind() {
    assert_eq!("memory:".parse(), Ok(StoreUrl::Memory));
    assert_eq!("sled:/var/lib/x".parse(), Ok(StoreUrl::Sled("/var/lib/x".into())));
    for text in
        ["", "sled", "sled:", "memory", "memory:x", "file:/x", "postgres://x", "sled:~/data", "sled: x"]
    {
        assert!(text.parse::<StoreUrl>().is_err(), "{text}");
    }
}
