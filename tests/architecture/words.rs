//! How paths are found. A parser of the whole language would not see into macros; a look at the words does.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Mention, room_of, root};

pub(super) fn mentions_under(directory: &Path) -> Vec<Mention> {
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
pub(super) type Word<'a> = (&'a str, usize);

/// The words of a source text without comments, strings, and modules of tests.
pub(super) fn words(text: &str) -> Vec<Word<'_>> {
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

pub(super) fn paths_in(words: &[Word<'_>], module: &[String], place: &str) -> Vec<Mention> {
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
