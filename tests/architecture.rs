//! The rooms of `src/` know only whom they may know: ARCHITECTURE.md as a test.
//!
//! Cargo enforces the edges between crates. Inside a crate nothing does, so the sources are read here: every path
//! that is written in them, in `use` or in the middle of an expression, is compared with the tables below. Tests are
//! left out: they may look at anything.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

#[path = "architecture/words.rs"]
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use self::words::{mentions_under, paths_in, words};

/// Who may know whom. A room is a module with all that is in it, but for the rooms within it. A name of a room allows
/// everything in it; a longer name allows that item alone. An edge that is not used has to go from the table.
const ROOMS: &[(&str, &[&str])] = &[
    // The time, which everybody is given.
    ("clock", &[]),
    // Panics of libraries that are caught. It knows nobody.
    ("panics", &[]),
    // Counts for metrics. Whoever counts may know it.
    ("histogram", &[]),
    // The operating system's numbers about the process.
    ("process", &[]),
    // The request that is being worked on, for the log.
    ("request", &[]),
    // How lines leave the process. It knows nobody.
    ("stderr", &[]),
    // What keeps tasks: the trait, its value types, and drivers that do not know each other.
    ("store", &["histogram"]),
    ("store::memory", &["store", "clock"]),
    ("store::sled", &["store", "clock", "histogram", "panics"]),
    // Tasks as lines of text. It knows nobody.
    ("archive", &[]),
    // Authorises and executes. It knows the trait of a store and no driver.
    ("broker", &["store"]),
    // Who sends a request. It knows nobody.
    ("auth", &[]),
    // Whom a TLS client believes. It knows nobody.
    ("trust", &[]),
    // Keeps the keys up to date that come from a file or a server.
    ("keysource", &["auth", "clock", "trust"]),
    // Maps between the wire and the broker. Of a store it knows only values that the broker passes through.
    (
        "http",
        &[
            "archive",
            "auth",
            "broker",
            "clock",
            "histogram",
            "process",
            "request",
            "stderr",
            "traces",
            "store::Applied",
            "store::EmbeddedStats",
            "store::FOLLOWER_STAGES",
            "store::Health",
            "store::ListPlace",
            "store::ListQuery",
            "store::Listed",
            "store::Payloads",
        ],
    ),
    // Settings are values of the rooms that they are for.
    (
        "config",
        &[
            "auth",
            "broker::SeatLimits",
            "clock",
            "http::HttpSettings",
            "http::Tls",
            "http::TlsError",
            "keysource",
            "tools::Input",
            "tools::Output",
            "traces::Endpoint",
            "trust::without_secrets",
        ],
    ),
    ("telemetry", &["config::LogFormat", "panics", "request", "stderr"]),
    // Spans, and how they are sent.
    ("traces", &["clock", "trust"]),
    ("healthcheck", &["clock", "config::Healthcheck", "trust"]),
    // Commands on stores, and a client of a running broker.
    ("tools", &["archive", "clock", "store", "store::sled", "trust"]),
    // Puts the rooms together.
    (
        "run",
        &["auth", "broker", "clock", "config", "http", "store", "store::memory", "store::sled", "traces"],
    ),
    // The decoders for the fuzz targets. It is only there with the feature of that name, and in tests; what is private
    // has a part of it inside.
    ("fuzzing", &["auth", "store::sled::fuzzing"]),
    ("store::sled::fuzzing", &["fuzzing", "store::sled", "store::sled::journal::fuzzing"]),
    ("store::sled::journal::fuzzing", &["fuzzing", "store", "store::sled"]),
    // The face of the library, and the command line.
    ("lib", &["run"]),
    (
        "main",
        &[
            "auth",
            "clock",
            "config",
            "healthcheck",
            "lib",
            "run",
            "stderr",
            "store::sled",
            "telemetry",
            "tools",
        ],
    ),
];

/// Which rooms may name a crate. What is not listed may be named by all.
const CRATES: &[(&str, &[&str])] = &[
    // The rules and their words are for everybody; the wire is for those who speak it.
    ("task_broker_protocol", &["http", "fuzzing"]),
    ("axum", &["http"]),
    ("hyper", &["http", "keysource", "tools"]),
    ("hyper_util", &["http", "keysource", "tools", "traces", "trust"]),
    ("hyper_rustls", &["keysource", "traces", "trust"]),
    ("rustls_native_certs", &["trust"]),
    ("rustls", &["healthcheck", "http", "trust"]),
    ("tokio_rustls", &["http"]),
    ("governor", &["http"]),
    ("quick_cache", &["auth", "http"]),
    ("http", &["http"]),
    ("http_body_util", &["http", "keysource", "tools", "traces"]),
    ("tower", &["http"]),
    ("tower_http", &["http"]),
    ("prometheus_client", &["http"]),
    ("opentelemetry", &["traces"]),
    ("opentelemetry_http", &["traces"]),
    ("opentelemetry_otlp", &["traces"]),
    ("opentelemetry_sdk", &["traces"]),
    ("jiff", &["http"]),
    ("jsonwebtoken", &["auth"]),
    ("aws_lc_rs", &["auth", "fuzzing"]),
    ("base64", &["archive", "auth", "fuzzing"]),
    ("pem", &["auth"]),
    ("serde_json", &["archive", "auth", "fuzzing", "http", "tools"]),
    ("sled", &["store::sled"]),
    ("postcard", &["store::sled"]),
    ("xxhash_rust", &["archive", "store::sled"]),
    ("rustix", &["http", "process", "store::sled", "main"]),
    ("clap", &["config", "main"]),
    ("clap_complete", &["main"]),
    ("clap_mangen", &["main"]),
    ("tracing_subscriber", &["telemetry"]),
    (
        "tokio",
        &[
            "auth",
            "broker",
            "http",
            "keysource",
            "main",
            "request",
            "run",
            "store",
            "store::memory",
            "store::sled",
            "tools",
            "traces",
        ],
    ),
];

/// What a crate of the workspace may depend on, tests aside. A crate that is not there yet has nothing to say.
const MANIFESTS: &[(&str, &[&str])] = &[
    // The rules: nothing that waits, stores or serves.
    ("crates/core", &["bytes", "thiserror", "xxhash-rust"]),
    // The wire types: nothing of the server, not even the rules. `memchr` is what `serde_json` searches with anyway.
    ("crates/protocol", &["bytes", "memchr", "serde", "serde_json", "thiserror"]),
    // The client: the wire and what sends it. Never the server, and not its rules.
    (
        "crates/client",
        &[
            "async-trait",
            "bytes",
            "futures-core",
            "getrandom",
            "http",
            "http-body-util",
            "hyper",
            "hyper-rustls",
            "hyper-util",
            "rustls",
            "serde",
            "serde_json",
            "task-broker-protocol",
            "thiserror",
            "tokio",
            "tower-mcp",
            "tracing",
        ],
    ),
];

/// What a crate must never depend on, whatever else it needs.
const NEVER: &[(&str, &[&str])] = &[
    ("crates/core", &["tokio", "axum", "hyper", "sled", "serde", "task-broker-protocol", "task-broker"]),
    ("crates/protocol", &["tokio", "axum", "hyper", "sled", "task-broker-core", "task-broker"]),
    ("crates/client", &["axum", "sled", "task-broker-core", "task-broker"]),
];

/// Where the standard library lets a program ask the time, and who may.
const CLOCKS: [&str; 2] = ["std::time::SystemTime", "std::time::Instant"];

/// Parts of the standard library that are no business of the pure crates.
const IMPURE: [&str; 7] =
    ["std::fs", "std::io", "std::net", "std::thread", "std::process", "std::env", "std::time"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A path that is written somewhere, from the root of a crate on.
#[derive(Debug)]
struct Mention {
    /// The module that names it.
    module: Vec<String>,
    /// `crate` first for a path within the library, otherwise the name of another crate.
    path: Vec<String>,
    /// Where: file and line.
    place: String,
}

impl Mention {
    fn text(&self) -> String {
        self.path.join("::")
    }

    /// The path within the library, if it is one.
    fn inside(&self) -> Option<String> {
        match self.path.first().map(String::as_str) {
            Some("crate") if self.path.len() > 1 => Some(self.path[1..].join("::")),
            _ => None,
        }
    }
}

fn is_in(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The innermost room in which something is.
fn room_of(path: &str) -> Option<&'static str> {
    let rooms = ROOMS.iter().map(|(room, _)| *room).filter(|room| is_in(path, room));
    rooms.max_by_key(|room| room.len())
}

/// The room in which a mention is written.
fn home(mention: &Mention) -> &'static str {
    let module = mention.module.join("::");
    room_of(&module).unwrap_or_else(|| panic!("{}: {module} is in no room", mention.place))
}

fn may_know(room: &str) -> &'static [&'static str] {
    ROOMS.iter().find(|(name, _)| *name == room).unwrap().1
}

/// The entry of the table that allows `room` to name `path`.
fn allowed_by(room: &str, path: &str) -> Option<&'static str> {
    let target = room_of(path).unwrap_or("lib");
    let is_room = |allowed: &str| ROOMS.iter().any(|(room, _)| *room == allowed);
    let allows = |allowed: &&str| if is_room(allowed) { *allowed == target } else { is_in(path, allowed) };
    may_know(room).iter().copied().find(allows)
}

fn mentions() -> Vec<Mention> {
    let mentions = mentions_under(&root().join("src"));
    // The guard of this test: it must see what it looks for.
    let told = |module: &str, path: &str| {
        mentions.iter().any(|seen| seen.module.join("::").starts_with(module) && seen.text() == path)
    };
    assert!(told("broker::wait", "crate::store::Reading"), "a use within a module");
    assert!(told("store::sled", "sled::Db"), "a use of another crate");
    assert!(told("store::sled::queue", "tokio::time::timeout"), "a path in an expression");
    assert!(told("store::sled", "crate::store::changelog::ChangeLog"), "a path through super");
    assert!(told("main", "crate::auth::mint"), "the library as the command line names it");
    mentions
}

#[test]
fn rooms_know_only_whom_they_may_know() {
    let mut wrong = Vec::new();
    for mention in mentions() {
        let Some(path) = mention.inside() else { continue };
        let (from, to) = (home(&mention), room_of(&path).unwrap_or("lib"));
        if from != to && allowed_by(from, &path).is_none() {
            wrong.push(format!("{}: {from} names {path}", mention.place));
        }
    }
    assert!(wrong.is_empty(), "\n{}\nsee the table ROOMS", wrong.join("\n"));
}

#[test]
fn a_room_is_not_its_inner_rooms_and_an_item_is_not_its_room() {
    assert!(allowed_by("broker", "store::Store").is_some());
    assert!(allowed_by("broker", "store::memory::MemoryStore").is_none());
    assert!(allowed_by("broker", "store::sled::SledStore").is_none());
    assert!(allowed_by("http", "store::ListQuery").is_some());
    assert!(allowed_by("http", "store::Store").is_none());
    assert!(allowed_by("http", "store::ListQueryAndMore").is_none());
    assert!(allowed_by("store::memory", "store::sled::SledStore").is_none());
    assert!(allowed_by("auth", "broker::Broker").is_none());
}

#[test]
fn every_edge_of_the_table_is_used() {
    let mut unused: BTreeSet<_> =
        ROOMS.iter().flat_map(|(room, known)| known.iter().map(move |known| (*room, *known))).collect();
    for mention in mentions() {
        let Some(path) = mention.inside() else { continue };
        let from = home(&mention);
        if let Some(edge) = allowed_by(from, &path) {
            unused.remove(&(from, edge));
        }
    }
    assert!(unused.is_empty(), "nobody goes this way, so nobody needs to be allowed to: {unused:?}");
}

#[test]
fn crates_are_named_only_in_the_rooms_they_are_for() {
    let mut wrong = Vec::new();
    for mention in mentions() {
        let name = mention.path[0].as_str();
        let Some((_, rooms)) = CRATES.iter().find(|(listed, _)| *listed == name) else { continue };
        if !rooms.contains(&home(&mention)) {
            wrong.push(format!("{}: {} names {}", mention.place, home(&mention), mention.text()));
        }
    }
    assert!(wrong.is_empty(), "\n{}\nsee the table CRATES", wrong.join("\n"));
}

#[test]
fn the_time_is_asked_for_in_one_place() {
    let mut asked = BTreeMap::<_, Vec<_>>::new();
    for mention in mentions() {
        if CLOCKS.iter().any(|clock| is_in(&mention.text(), clock)) {
            asked.entry(home(&mention)).or_default().push(mention.place);
        }
    }
    assert_eq!(asked.keys().copied().collect::<Vec<_>>(), ["clock"], "{asked:?}");
}

#[test]
fn the_pure_crates_touch_neither_time_nor_anything_outside() {
    for name in ["crates/core", "crates/protocol"] {
        let mentions = mentions_under(&root().join(name).join("src"));
        assert!(mentions.len() > 50, "{name} was read");
        for mention in mentions {
            let impure = IMPURE.iter().find(|impure| is_in(&mention.text(), impure));
            assert_eq!(impure, None, "{}", mention.place);
        }
    }
}

/// The names in one table of a manifest.
fn dependencies(manifest: &str) -> BTreeSet<&str> {
    let lines = manifest.lines().map(str::trim);
    let table = lines.skip_while(|line| *line != "[dependencies]").skip(1);
    let table = table.take_while(|line| !line.starts_with('['));
    table
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split(['.', '=', ' ']).next())
        .collect()
}

#[test]
fn crates_depend_only_on_what_they_may_depend_on() {
    for (name, allowed) in MANIFESTS {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        let expected: BTreeSet<_> = allowed.iter().copied().collect();
        assert_eq!(dependencies(&manifest), expected, "{name}: see the table MANIFESTS");
        assert!(
            !manifest.contains("[target."),
            "{name}: dependencies of one platform are not looked at here"
        );
        assert!(!manifest.contains("[build-dependencies]"), "{name}");
    }
    for (name, never) in NEVER {
        let Ok(manifest) = fs::read_to_string(root().join(name).join("Cargo.toml")) else { continue };
        let found: Vec<_> = never.iter().filter(|never| dependencies(&manifest).contains(*never)).collect();
        assert!(found.is_empty(), "{name} must not depend on {found:?}");
    }
}

#[test]
fn paths_are_found_wherever_they_are_written() {
    let text = r##"
        //! crate::comment::no
        use crate::store::{Store, memory::MemoryStore as Memory, sled::{SledStore, *}};
        use super::super::clock::Clock;
        use ::sled::Db;
        /* crate::comment::no */
        fn f<'a>(x: &'a str) -> Option<self::wait::Wait> {
            let quote = '"'; let text = "crate::string::no \" "; let raw = r#"crate::raw::no " "#;
            tokio::select! { () = crate::macros::yes() => {} }
            Vec::<crate::generic::Yes>::new()
        }
        #[cfg(test)]
        mod tests { use crate::test::no; fn g() { { } } }
        use crate::after::yes;
    "##;
    let module = ["broker".to_owned(), "hub".to_owned()];
    let found: BTreeSet<_> = paths_in(&words(text), &module, "here").iter().map(Mention::text).collect();
    let expected = [
        "crate::store::Store",
        "crate::store::memory::MemoryStore",
        "crate::store::sled::SledStore",
        "crate::store::sled::*",
        "crate::clock::Clock",
        "sled::Db",
        "crate::broker::hub::wait::Wait",
        "tokio::select",
        "crate::macros::yes",
        "crate::generic::Yes",
        "crate::after::yes",
    ];
    assert_eq!(found, expected.map(str::to_owned).into());
}

/// The longest file that a reader is asked to keep in mind.
const LONGEST: usize = 600;

#[test]
fn no_source_file_is_longer_than_a_reader_can_bear() {
    let mut folders: Vec<_> =
        ["src", "crates", "bench", "examples", "tests", "fuzz"].map(|folder| root().join(folder)).into();
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let lines = fs::read_to_string(&path).unwrap().lines().count();
                assert!(lines <= LONGEST, "{} has {lines} lines", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 200, "only {seen} files were looked at");
}
