//! Damaged data directories (D02): every start either has all of it, byte for byte, or ends within seconds with one clear
//! message that names the place. docs/crash-tests.md tells how the places are chosen and what has been counted.
//!
//! Each trial damages a copy of a store: a flipped byte, a block of zeros, or a file that ends earlier. Most of them hit
//! bytes that are known to hold live data:
//!
//! - in the journal after an unclean stop, the frames of the newest generation, found by their marks and headers;
//! - in sled's file, cells of payloads and heads of living tasks that are in the file exactly once, found by their text;
//! - any byte of sled's snapshot.

mod map;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::json;

use self::map::Map;
use crate::files::{changes, copy, generation, journal_generation, scratch, tree};
use crate::harness::attempt::{Outcome, Start};
use crate::harness::link::Link;
use crate::restarts::tools;
use crate::{long, seed};

/// Neither a start nor a stop may take longer on damaged data.
const DEADLINE: Duration = Duration::from_secs(10);
const TASKS: usize = 120;

/// What a client sees of a task: `store/get` and `store/resume` as bytes, without what moves with the clock.
type Contents = BTreeMap<String, String>;

fn without_time(text: &str) -> String {
    let (before, rest) = text.split_once(r#""remainingMs":"#).unwrap();
    let (_, after) = rest.split_once(',').unwrap();
    format!("{before}{after}")
}

/// Reads everything. A task of which a part is refused as damaged is in it as `damaged`.
fn contents(link: &mut Link, ids: &[String]) -> Result<Contents, String> {
    let mut contents = Contents::new();
    for id in ids {
        let mut text = String::new();
        for method in ["store/get", "store/resume"] {
            let params = json!({"taskId": id}).to_string();
            let answer =
                link.call(method, &params).ok_or_else(|| format!("the broker went away at {method}"))?;
            if !answer.is_error() {
                text.push_str(&without_time(answer.text()));
                continue;
            }
            match answer.error().kind.as_str() {
                "task_not_found" => text.push_str("missing"),
                "internal" => text.push_str("damaged"),
                other => return Err(format!("{other}: {answer}")),
            }
        }
        contents.insert(id.clone(), text);
    }
    Ok(contents)
}

/// A store that was stopped, and what was in it.
struct Stopped {
    data: PathBuf,
    clean: bool,
    contents: Contents,
    /// The tool names of all tasks.
    tools: Vec<String>,
}

/// The length of a cell in bytes.
const CELL: usize = 64;
const CELL_MARK: &[u8] = b"cell-";
const TOOL_MARK: &[u8] = b"tool-";

/// Text in cells: each names itself, and there is none like it.
fn cells(name: &str, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + CELL);
    let mut rng = fastrand::Rng::with_seed(bytes as u64);
    for number in 0..bytes.div_ceil(CELL) {
        let begin = text.len();
        write!(text, "cell-{name}-{number:05}.").unwrap();
        while text.len() < begin + CELL {
            text.push(rng.alphanumeric());
        }
    }
    text
}

/// Tasks in every status and of several sizes, enough for several of sled's segments; some of them were changed, some
/// discarded. Half of them were there at an earlier start, so that sled's snapshot knows them.
fn prepare(data: &Path, clean: bool) -> Stopped {
    let mut ids = Vec::new();
    let first = Start::on(data).serve();
    let mut link = first.link();
    (0..TASKS / 2).for_each(|n| ids.push(make(&mut link, n)));
    assert!(first.stop(DEADLINE).status.success());
    let second = Start::on(data).serve();
    let mut link = second.link();
    (TASKS / 2..TASKS).for_each(|n| ids.push(make(&mut link, n)));
    let contents = contents(&mut link, &ids).unwrap();
    let tools = tools(&mut link);
    if clean {
        assert!(second.stop(DEADLINE).status.success());
    } else {
        second.kill9();
    }
    Stopped { data: data.to_owned(), clean, contents, tools }
}

fn make(link: &mut Link, n: usize) -> String {
    let size = if n.is_multiple_of(3) { 160_000 } else { 900 };
    let fill = cells(&format!("a{n:03}"), size);
    let params =
        json!({"toolName": format!("tool-{n:03}"), "arguments": {"n": n, "fill": fill}, "ttlMs": 3_600_000});
    let created = link.ask("store/create", &params).result();
    let id = created["task"]["taskId"].as_str().unwrap().to_owned();
    let fill = cells(&format!("b{n:03}"), size);
    let (method, more) = match n % 6 {
        0 => ("store/complete", json!({"result": {"n": n, "fill": fill}})),
        1 => ("store/fail", json!({"error": {"code": n, "message": "failed", "data": fill}})),
        2 => ("store/setMeta", json!({"meta": {"n": n}})),
        3 => ("store/requireInput", json!({"inputRequests": {"k": {"method": "m", "params": {"n": n}}}})),
        4 => ("store/cancel", json!({"reason": format!("reason {n}")})),
        _ => ("store/discard", json!({})),
    };
    let mut params = json!({"taskId": id});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    link.ask(method, &params).result();
    id
}

/// One way to damage a generation.
struct Damage {
    what: String,
    inflict: Box<dyn Fn(&Path) + Send + Sync>,
}

fn damage(what: impl Into<String>, inflict: impl Fn(&Path) + Send + Sync + 'static) -> Damage {
    Damage { what: what.into(), inflict: Box::new(inflict) }
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn largest(generation: &Path) -> PathBuf {
    let files = fs::read_dir(generation).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).max_by_key(|path| length(path)).unwrap()
}

fn truncate(path: &Path, length: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

fn newest_snapshot(generation: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(generation).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("snap.")).max()
}

/// Cuts, and files that are gone or something else.
fn coarse() -> Vec<Damage> {
    let cut = |bytes: u64| {
        move |generation: &Path| {
            let file = largest(generation);
            let rest = length(&file).saturating_sub(bytes);
            truncate(&file, rest);
        }
    };
    let mut all = vec![
        damage("cut by 1 byte", cut(1)),
        damage("cut by 4 KiB", cut(4096)),
        damage("cut by half", |generation| {
            let file = largest(generation);
            truncate(&file, length(&file) / 2);
        }),
        damage("4 KiB of zeros in the middle", |generation| {
            let file = largest(generation);
            let middle = length(&file) / 2;
            OpenOptions::new().write(true).open(&file).unwrap().write_all_at(&[0; 4096], middle).unwrap();
        }),
        damage("no snapshot", |generation| {
            if let Some(snapshot) = newest_snapshot(generation) {
                fs::remove_file(snapshot).unwrap();
            }
        }),
        damage("an empty snapshot", |generation| {
            fs::write(newest_snapshot(generation).unwrap_or(generation.join("snap.0000000000000001")), "")
                .unwrap();
        }),
        damage("a snapshot that was being written", |generation| {
            fs::write(generation.join("snap.0000000000000001.generating"), "half").unwrap();
        }),
    ];
    for name in ["db", "conf"] {
        all.push(damage(format!("{name} is empty"), move |generation| truncate(&generation.join(name), 0)));
        all.push(damage(format!("{name} is a text"), move |generation| {
            fs::write(generation.join(name), "Dear diary,\n".repeat(1000)).unwrap();
        }));
        all.push(damage(format!("{name} is gone"), move |generation| {
            fs::remove_file(generation.join(name)).unwrap();
        }));
    }
    all.push(damage("a blob that nobody made", |generation| {
        fs::create_dir_all(generation.join("blobs")).unwrap();
        fs::write(generation.join("blobs/1"), "blob").unwrap();
    }));
    all
}

/// What is damaged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Flip,
    Zeros,
    Cut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Journal,
    Db,
    Snapshot,
    Conf,
}

/// After an unclean stop, again and again.
const UNCLEAN: [(Place, Kind); 16] = [
    (Place::Journal, Kind::Flip),
    (Place::Db, Kind::Flip),
    (Place::Journal, Kind::Zeros),
    (Place::Db, Kind::Zeros),
    (Place::Snapshot, Kind::Flip),
    (Place::Journal, Kind::Cut),
    (Place::Db, Kind::Cut),
    (Place::Journal, Kind::Flip),
    (Place::Snapshot, Kind::Zeros),
    (Place::Journal, Kind::Zeros),
    (Place::Db, Kind::Flip),
    (Place::Journal, Kind::Flip),
    (Place::Db, Kind::Zeros),
    (Place::Journal, Kind::Zeros),
    (Place::Snapshot, Kind::Cut),
    (Place::Db, Kind::Flip),
];

/// After a clean stop sled has all of it, and the journal nothing.
const CLEAN: [(Place, Kind); 16] = [
    (Place::Db, Kind::Flip),
    (Place::Db, Kind::Zeros),
    (Place::Snapshot, Kind::Flip),
    (Place::Db, Kind::Cut),
    (Place::Db, Kind::Flip),
    (Place::Db, Kind::Zeros),
    (Place::Journal, Kind::Flip),
    (Place::Snapshot, Kind::Zeros),
    (Place::Db, Kind::Flip),
    (Place::Db, Kind::Zeros),
    (Place::Journal, Kind::Zeros),
    (Place::Db, Kind::Flip),
    (Place::Snapshot, Kind::Cut),
    (Place::Db, Kind::Flip),
    (Place::Conf, Kind::Flip),
    (Place::Db, Kind::Zeros),
];

/// Every so manieth place in sled's file is any byte that is not zero.
const ANYWHERE_IN: usize = 6;

/// One damage for one copy of a store.
struct Trial {
    place: Place,
    kind: Kind,
    live: bool,
    damage: Damage,
}

fn trial(stopped: &Stopped, map: &Map, number: usize, rng: &mut fastrand::Rng) -> Trial {
    let cycle = if stopped.clean { CLEAN } else { UNCLEAN };
    let (place, kind) = cycle[number % cycle.len()];
    let (path, at, live) = map.choose(place, stopped.clean, rng);
    let name = path.file_name().unwrap().to_owned();
    let bits = rng.u8(1..);
    let what = format!("{place:?} {kind:?} at {at} of {} in {}", length(path), name.display());
    let damage = damage(what, move |generation| {
        let path = generation.join(&name);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        match kind {
            Kind::Flip => {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ bits], at).unwrap();
            }
            Kind::Zeros => {
                let begin = at / 4096 * 4096;
                let zeros = vec![0; usize::try_from(length(&path).min(begin + 4096) - begin).unwrap()];
                file.write_all_at(&zeros, begin).unwrap();
            }
            Kind::Cut => file.set_len(at).unwrap(),
        }
    });
    Trial { place, kind, live, damage }
}

/// What came of a start on damaged data, as far as that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// Everything is there, byte for byte.
    Whole,
    /// Only the newest group is missing, and the log tells so with offset and length.
    CutAndTold,
    /// Ended with a message that names the place, and changed no file but what sled rewrites when it opens.
    Refused,
    /// It serves; the damage is told to whoever reads the payload, and in the log.
    ToldByRead,
    /// The same, and `task-broker check` names it.
    ToldByCheck,
    /// It noticed while it served, and ended with a clear message.
    Ended,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "recovered completely",
            Self::CutAndTold => "cut a torn last group and told so",
            Self::Refused => "refused with the place",
            Self::ToldByRead => "told by the read only",
            Self::ToldByCheck => "told by check",
            Self::Ended => "served and ended by itself",
        })
    }
}

/// Starts a broker on a damaged copy, and says what came of it.
fn try_on_a_copy(stopped: &Stopped, damage: &Damage) -> Result<Verdict, String> {
    let files = scratch();
    let data = files.path().join("data");
    copy(&stopped.data, &data);
    (damage.inflict)(&generation(&data));
    let before = tree(&data);
    let verdict = start(stopped, &data)?;
    if verdict == Verdict::ToldByRead && check_knows() {
        return check(&data).map(|()| Verdict::ToldByCheck);
    }
    if verdict != Verdict::Refused {
        return Ok(verdict);
    }
    let mut changed = changes(&before, &tree(&data));
    changed.retain(|name| name != Path::new("LOCK"));
    // sled cuts zeros off the end of its file, and writes a snapshot, whenever it opens it.
    changed.retain(|name| {
        name.file_name() != Some("db".as_ref()) && !name.display().to_string().contains("snap.")
    });
    if !changed.is_empty() {
        return Err(format!("refused, but changed {changed:?}"));
    }
    // A supervisor tries again, and what was refused once must not become a fresh start by that.
    match start(stopped, &data)? {
        Verdict::Refused => Ok(Verdict::Refused),
        again => Err(format!("refused, and at the next start {again}")),
    }
}

/// Whether this broker has `task-broker check`.
fn check_knows() -> bool {
    static KNOWS: OnceLock<bool> = OnceLock::new();
    *KNOWS.get_or_init(|| {
        let help = command(&["help"]);
        help.lines().any(|line| line.trim_start().starts_with("check "))
    })
}

pub(crate) fn broker() -> std::process::Command {
    std::process::Command::new(
        std::env::var_os("BROKER_UNDER_TEST").unwrap_or(env!("CARGO_BIN_EXE_task-broker").into()),
    )
}

fn command(args: &[&str]) -> String {
    String::from_utf8(broker().args(args).output().unwrap().stdout).unwrap()
}

/// `task-broker check` must find the damage and name it.
fn check(data: &Path) -> Result<(), String> {
    let output =
        broker().args(["check", "--store"]).arg(format!("sled:{}", data.display())).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let names_it = said.lines().any(|line| line.starts_with("FAULT") && line.contains("payload"));
    if output.status.code() == Some(1) && names_it {
        Ok(())
    } else {
        Err(format!("check says {}: {said}", output.status))
    }
}

fn start(stopped: &Stopped, data: &Path) -> Result<Verdict, String> {
    let mut broker = match Start::on(data).outcome(DEADLINE) {
        Outcome::Hung(said) => return Err(format!("neither serves nor ends: {said:#?}")),
        Outcome::Refused(refused) => {
            refused.assert_clear(data);
            // sled does, on some damage, and that is expected: the message says so in other words.
            if refused.text().contains("a thread panicked") {
                return Err(format!("a panic of sled is logged as a mistake of the program: {refused:?}"));
            }
            return Ok(Verdict::Refused);
        }
        Outcome::Serving(broker) => broker,
    };
    let ids: Vec<_> = stopped.contents.keys().cloned().collect();
    match contents(&mut broker.link(), &ids) {
        Ok(found) => {
            let listed = tools(&mut broker.link());
            let ended = broker.stop(DEADLINE);
            ended.assert_no_panic_text();
            if ended.status.code().is_none() {
                return Err(format!("ended by a signal: {ended:?}"));
            }
            compare(stopped, &found, &listed, &ended.said)
        }
        Err(gone) => {
            // It noticed while it served. Then it must end by itself, and clearly.
            let ended = broker.ended(DEADLINE).map_err(|said| format!("{gone}, and goes on: {said:#?}"))?;
            ended.assert_clear(data);
            Ok(Verdict::Ended)
        }
    }
}

/// What is different, as far as it may be.
fn compare(
    stopped: &Stopped,
    after: &Contents,
    listed: &[String],
    said: &[String],
) -> Result<Verdict, String> {
    let different: Vec<_> = stopped.contents.iter().filter(|(id, text)| after[*id] != **text).collect();
    if different.is_empty() {
        return if listed == stopped.tools {
            Ok(Verdict::Whole)
        } else {
            Err(format!("listed are {listed:?}"))
        };
    }
    let quiet = different.iter().find(|(id, _)| !after[*id].contains("damaged"));
    if let Some((id, text)) = quiet {
        let cut = |line: &&String| {
            line.contains("cut off") && line.contains("\"offset\":") && line.contains("\"length\":")
        };
        if said.iter().any(|line| cut(&line)) && !stopped.clean && different.len() == 1 {
            return Ok(Verdict::CutAndTold);
        }
        let (now, text) = (beginning(&after[*id]), beginning(text));
        return Err(format!(
            "SILENT: {} tasks are not as they were, for one {now}\ninstead of {text}",
            different.len()
        ));
    }
    if listed != stopped.tools {
        return Err(format!("SILENT: listed are {listed:?}"));
    }
    for (id, text) in &different {
        let told = said.iter().any(|line| line.contains(id.as_str()) && line.contains("payload"));
        if !told {
            return Err(format!("the log does not name what was found wrong in {}", beginning(text)));
        }
    }
    Ok(Verdict::ToldByRead)
}

fn beginning(text: &str) -> String {
    text.chars().take(300).collect()
}

/// Does `one` to each of these, two at a time.
fn two_at_a_time<T: Sync, R: Send>(all: &[T], one: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let one = &one;
    std::thread::scope(|scope| {
        let (left, right) = all.split_at(all.len() / 2);
        let halves = [left, right].map(|half| scope.spawn(move || half.iter().map(one).collect::<Vec<_>>()));
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    })
}

fn tried(stopped: &Stopped, damage: &Damage) -> Result<Verdict, String> {
    let tried = catch_unwind(AssertUnwindSafe(|| try_on_a_copy(stopped, damage)));
    tried.unwrap_or_else(|panic| Err(panic.downcast_ref::<String>().cloned().unwrap_or_default()))
}

/// Inflicts each damage on a copy of its own.
fn inflict_all(clean: bool, damages: &[Damage]) {
    let files = scratch();
    let stopped = prepare(&files.path().join("data"), clean);
    let results = two_at_a_time(damages, |damage| tried(&stopped, damage));
    let mut failures = String::new();
    for (damage, result) in damages.iter().zip(results) {
        match result {
            Ok(verdict) => eprintln!("{}: {verdict}", damage.what),
            Err(failure) => write!(failures, "\n{}: {failure}", damage.what).unwrap(),
        }
    }
    assert!(failures.is_empty(), "after a {} stop:{failures}", if clean { "clean" } else { "unclean" });
}

/// Many trials at places that are chosen at random, with a table of what came of them.
fn try_many(clean: bool) {
    let seed = seed();
    let files = scratch();
    let stopped = prepare(&files.path().join("data"), clean);
    let map = Map::of(&stopped);
    let mut rng = fastrand::Rng::with_seed(seed);
    let trials: Vec<_> =
        (0..long::rounds(16)).map(|number| trial(&stopped, &map, number, &mut rng)).collect();
    let results = two_at_a_time(&trials, |trial| tried(&stopped, &trial.damage));
    let mut table: BTreeMap<(Place, Kind, bool), BTreeMap<String, usize>> = BTreeMap::new();
    let mut failures = String::new();
    let stop = if clean { "clean" } else { "unclean" };
    for (trial, result) in trials.iter().zip(results) {
        let verdict = match result {
            Ok(verdict) => verdict.to_string(),
            Err(failure) => {
                write!(failures, "\n{}: {failure}", trial.damage.what).unwrap();
                "FAILED".to_owned()
            }
        };
        eprintln!("{}{}: {verdict}", trial.damage.what, if trial.live { ", live" } else { "" });
        let row = table.entry((trial.place, trial.kind, trial.live)).or_default();
        *row.entry(verdict).or_default() += 1;
    }
    for ((place, kind, live), counts) in &table {
        let counts: Vec<_> = counts.iter().map(|(verdict, count)| format!("{verdict} {count}")).collect();
        let live = if *live { "live" } else { "not known to be live" };
        long::count(&format!("damage, {stop} stop, {place:?}, {kind:?}, {live}"), &counts.join(", "));
    }
    assert!(failures.is_empty(), "after a {stop} stop, seed {seed}:{failures}");
}

#[test]
fn a_clean_stop_and_then_cut_or_missing_files_never_hang_or_panic_a_start() {
    inflict_all(true, &coarse());
}

#[test]
fn an_unclean_stop_and_then_cut_or_missing_files_never_hang_or_panic_a_start() {
    inflict_all(false, &coarse());
}

/// The long run: `scripts/crash.sh damage`.
#[test]
fn damage_after_a_clean_stop_is_never_silent() {
    try_many(true);
}

/// The long run: `scripts/crash.sh damage`.
#[test]
fn damage_after_an_unclean_stop_is_never_silent() {
    try_many(false);
}

/// The comparison can fail: what a silent loss would look like does not pass.
#[test]
fn a_comparison_tells_silent_loss_from_all_that_is_allowed() {
    let state = |one: &str, two: &str| Contents::from([("a1".into(), one.into()), ("b2".into(), two.into())]);
    let before = state("one", "two");
    let tools = vec!["tool-1".to_owned(), "tool-2".to_owned()];
    let stopped =
        |clean| Stopped { data: PathBuf::new(), clean, contents: before.clone(), tools: tools.clone() };
    let cut = ["{\"message\":\"it is cut off\",\"offset\":1,\"length\":2}".to_owned()];
    let named = ["payload 1/0 of task b2: other bytes".to_owned()];
    let verdict = |clean, after: &Contents, listed: &[String], said: &[String]| {
        compare(&stopped(clean), after, listed, said).ok()
    };
    assert_eq!(verdict(true, &before, &tools, &[]), Some(Verdict::Whole));
    assert_eq!(verdict(true, &before, &tools[..1], &[]), None, "the list lacks one");
    let older = state("one", "older");
    assert_eq!(verdict(true, &older, &tools, &cut), None, "nothing may be cut after a clean stop");
    assert_eq!(verdict(false, &older, &tools, &[]), None, "cut without a word");
    assert_eq!(verdict(false, &older, &tools, &cut), Some(Verdict::CutAndTold));
    assert_eq!(verdict(false, &state("older", "older"), &tools, &cut), None, "more than the last one");
    let found = state("one", "damaged");
    assert_eq!(verdict(true, &found, &tools, &named), Some(Verdict::ToldByRead));
    assert_eq!(verdict(true, &found, &tools, &[]), None, "not in the log");
    assert_eq!(verdict(true, &state("other", "damaged"), &tools, &named), None, "and another one silently");
}
