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

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Who may know whom. A room is a module with all that is in it, but for the rooms within it. A name of a room allows
/// everything in it; a longer name allows that item alone. An edge that is not used has to go from the table.
const ROOMS: &[(&str, &[&str])] = &[
    // The time, which everybody is given.
    ("clock", &[]),
    // Counts for metrics. Whoever counts may know it.
    ("histogram", &[]),
    // The operating system's numbers about the process.
    ("process", &[]),
    // The request that is being worked on, for the log.
    ("request", &[]),
    // What keeps tasks: the trait, its value types, and drivers that do not know each other.
    ("store", &["histogram"]),
    ("store::memory", &["store", "clock"]),
    ("store::sled", &["store", "clock", "histogram"]),
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
        ],
    ),
    ("telemetry", &["config::LogFormat", "request"]),
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
    ("main", &["auth", "clock", "config", "healthcheck", "lib", "run", "store::sled", "telemetry", "tools"]),
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
    // The wire types: nothing of the server, not even the rules.
    ("crates/protocol", &["bytes", "serde", "serde_json", "thiserror"]),
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

// How paths are found. A parser of the whole language would not see into macros; a look at the words does.

fn mentions_under(directory: &Path) -> Vec<Mention> {
    let mut files = Vec::new();
    collect(directory, &mut files);
    files.sort();
    let read = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        let inside = file.strip_prefix(directory).unwrap().with_extension("");
        let mut module: Vec<_> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        module.pop_if(|last| last == "mod");
        let place = file.strip_prefix(root()).unwrap().display().to_string();
        paths_in(&words(&text), &module, &place)
    };
    files.iter().flat_map(read).collect()
}

/// The files of a directory that are not tests.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let tests = ["tests", "suite", "tests.rs"].contains(&name.as_str()) || name.ends_with("_tests.rs");
        if tests {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// A word, `::`, or a single character, with its line.
type Word<'a> = (&'a str, usize);

/// The words of a source text without comments, strings, and modules of tests.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => rest.find("*/").unwrap() + 2,
            '"' => string(rest),
            '\'' => character_or_lifetime(rest),
            _ if rest.starts_with("::") => {
                words.push(("::", line));
                2
            }
            _ if first.is_alphanumeric() || first == '_' => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                let hashes = rest[end..].bytes().take_while(|byte| *byte == b'#').count();
                let opens = rest[end + hashes..].starts_with('"');
                if ["r", "br", "cr"].contains(&&rest[..end]) && opens {
                    raw_string(rest, end, hashes)
                } else {
                    words.push((&rest[..end], line));
                    end
                }
            }
            _ => {
                let length = first.len_utf8();
                if !first.is_whitespace() {
                    words.push((&rest[..length], line));
                }
                length
            }
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    without_tests(&words)
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            b'"' if !escaped => return at + 1,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    panic!("a string without end")
}

fn raw_string(text: &str, prefix: usize, hashes: usize) -> usize {
    let start = prefix + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    start + text[start..].find(&end).unwrap() + end.len()
}

fn character_or_lifetime(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), Some((escaped, _))) => {
            let behind = escaped + 1;
            behind + text[behind..].find('\'').unwrap() + 1
        }
        (_, Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

/// Leaves out `#[cfg(test)] mod name { ... }`.
fn without_tests<'a>(words: &[Word<'a>]) -> Vec<Word<'a>> {
    const MARK: [&str; 8] = ["#", "[", "cfg", "(", "test", ")", "]", "mod"];
    let mut kept = Vec::with_capacity(words.len());
    let mut at = 0;
    while at < words.len() {
        let is_marked =
            MARK.iter().enumerate().all(|(n, mark)| words.get(at + n).is_some_and(|w| w.0 == *mark));
        if is_marked && words[at + 9].0 == "{" {
            let mut depth = 1;
            at += 10;
            while depth > 0 {
                depth += match words[at].0 {
                    "{" => 1,
                    "}" => -1,
                    _ => 0,
                };
                at += 1;
            }
        } else {
            kept.push(words[at]);
            at += 1;
        }
    }
    kept
}

/// Words that can stand before a path with a leading `::`, but are no part of it.
const KEYWORDS: [&str; 10] = ["use", "as", "in", "return", "else", "match", "if", "dyn", "impl", "mut"];

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_') && !KEYWORDS.contains(&word)
}

fn paths_in(words: &[Word<'_>], module: &[String], place: &str) -> Vec<Mention> {
    let mut mentions = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let (word, line) = words[at];
        let starts = is_name(word) || (word == "::" && words.get(at + 1).is_some_and(|next| is_name(next.0)));
        if !starts {
            at += 1;
            continue;
        }
        let mut found = Vec::new();
        let start = if word == "::" { at + 1 } else { at };
        at = path(words, start, &[], &mut found);
        for path in found.iter().filter(|path| path.len() > 1) {
            let path = from_the_root(path, module);
            mentions.push(Mention { module: module.to_vec(), path, place: format!("{place}:{line}") });
        }
    }
    mentions
}

/// Reads the path that begins at `at`, with all branches of its tree, and says where it ends.
fn path<'a>(words: &[Word<'a>], mut at: usize, stem: &[&'a str], found: &mut Vec<Vec<&'a str>>) -> usize {
    let mut path = stem.to_vec();
    loop {
        match words.get(at).map_or("", |word| word.0) {
            "{" => {
                at += 1;
                while words[at].0 != "}" {
                    at = if words[at].0 == "," { at + 1 } else { self::path(words, at, &path, found) };
                }
                return at + 1;
            }
            word if is_name(word) || word == "*" => path.push(word),
            // A turbofish, or something else that ends the path.
            _ => break,
        }
        at += 1;
        match words.get(at).map_or("", |word| word.0) {
            "::" => at += 1,
            "as" if !stem.is_empty() => {
                at += 2;
                break;
            }
            _ => break,
        }
    }
    found.push(path);
    at
}

/// Resolves `self` and `super`; the command line's name for the library is `crate`.
fn from_the_root(path: &[&str], module: &[String]) -> Vec<String> {
    let mut base = module.to_vec();
    let mut rest = path;
    match path[0] {
        "crate" => {}
        "task_broker" => return ["crate"].iter().chain(&path[1..]).map(ToString::to_string).collect(),
        "self" => rest = &path[1..],
        "super" => {
            while rest.first() == Some(&"super") {
                base.pop().unwrap();
                rest = &rest[1..];
            }
        }
        // The library names its rooms without a word before them.
        room if *module == ["lib"] && room_of(room).is_some() => base.clear(),
        _ => return path.iter().map(ToString::to_string).collect(),
    }
    if path[0] == "crate" {
        return path.iter().map(ToString::to_string).collect();
    }
    let base = base.iter().map(String::as_str);
    std::iter::once("crate").chain(base).chain(rest.iter().copied()).map(str::to_owned).collect()
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
