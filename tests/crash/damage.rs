//! Damaged data directories (D02): every start either serves, or ends within seconds with one clear message.
//!
//! Whether what is served is all that was there is printed and not yet asserted: sled cannot tell, and the proof is
//! the journal's. Wrong bytes are never right.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::files::{changes, copy, generation, scratch, tree};
use crate::harness::attempt::{Outcome, Start};
use crate::harness::link::Link;
use crate::seed;

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
    contents: Contents,
}

/// Tasks in every status and of several sizes, enough for several of sled's segments; some of them were changed, some discarded.
fn prepare(data: &Path, clean: bool) -> Stopped {
    let broker = Start::on(data).serve();
    let mut link = broker.link();
    let mut ids = Vec::new();
    for n in 0..TASKS {
        let size = if n % 3 == 0 { 160_000 } else { 900 };
        let fill: String = (b'a'..=b'z').cycle().skip(n % 26).take(size).map(char::from).collect();
        let params =
            json!({"toolName": format!("tool-{n}"), "arguments": {"n": n, "fill": fill}, "ttlMs": 3_600_000});
        let created = link.ask("store/create", &params).result();
        let id = created["task"]["taskId"].as_str().unwrap().to_owned();
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
        ids.push(id);
    }
    let contents = contents(&mut link, &ids).unwrap();
    if clean {
        assert!(broker.stop(DEADLINE).status.success());
    } else {
        broker.kill9();
    }
    Stopped { data: data.to_owned(), contents }
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

/// One changed byte each, at ten places between these ten-thousandths of what is written.
fn flips(seed: u64, places: Range<usize>) -> Vec<Damage> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let flip = |_| {
        let (place, bits) = (rng.usize(places.clone()), rng.u8(1..));
        damage(format!("a byte flipped at {place}/10000 by {bits}"), move |generation| {
            let path = largest(generation);
            // Behind what was written there are only zeros, in which a changed byte is no damage.
            let content = fs::read(&path).unwrap();
            let written = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let at = written * place / 10_000;
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[content[at] ^ bits], at as u64).unwrap();
        })
    };
    (0..10).map(flip).collect()
}

/// Starts a broker on a damaged copy, and says in a few words what came of it.
fn try_on_a_copy(stopped: &Stopped, damage: &Damage) -> Result<String, String> {
    let files = scratch();
    let data = files.path().join("data");
    copy(&stopped.data, &data);
    (damage.inflict)(&generation(&data));
    let before = tree(&data);
    let verdict = start(stopped, &data)?;
    if verdict != REFUSED {
        return Ok(verdict);
    }
    let mut changed = changes(&before, &tree(&data));
    changed.retain(|name| name != Path::new("LOCK"));
    let touched = if changed.is_empty() { String::new() } else { format!(", but CHANGED {changed:?}") };
    // A supervisor tries again, and what was refused once must not become a fresh start by that.
    match start(stopped, &data)? {
        again if again == REFUSED => Ok(format!("{REFUSED}{touched}")),
        again => Ok(format!("{REFUSED}{touched}, and at the next start {again}")),
    }
}

const REFUSED: &str = "refused";

fn start(stopped: &Stopped, data: &Path) -> Result<String, String> {
    let mut broker = match Start::on(data).outcome(DEADLINE) {
        Outcome::Hung(said) => return Err(format!("neither serves nor ends: {said:#?}")),
        Outcome::Refused(refused) => {
            refused.assert_clear(data);
            return Ok(REFUSED.to_owned());
        }
        Outcome::Serving(broker) => broker,
    };
    let ids: Vec<_> = stopped.contents.keys().cloned().collect();
    match contents(&mut broker.link(), &ids) {
        Ok(found) => {
            let verdict = compare(&stopped.contents, &found)?;
            let ended = broker.stop(DEADLINE);
            ended.assert_no_panic_text();
            assert!(ended.status.code().is_some(), "ended by a signal: {ended:?}");
            Ok(verdict)
        }
        Err(gone) => {
            // It noticed while it served. Then it must end by itself, and clearly.
            let ended = broker.ended(DEADLINE).map_err(|said| format!("{gone}, and goes on: {said:#?}"))?;
            ended.assert_clear(data);
            Ok("served and ended by itself".to_owned())
        }
    }
}

/// What is different, as far as it may be for now: tasks that are missing without a word, or an older state of them.
fn compare(before: &Contents, after: &Contents) -> Result<String, String> {
    let (mut missing, mut damaged, mut other) = (0, 0, Vec::new());
    for (id, text) in before {
        let now = &after[id];
        if now == text {
        } else if now.contains("damaged") {
            damaged += 1;
        } else if now == "missingmissing" {
            missing += 1;
        } else {
            other.push((text, now));
        }
    }
    // An older state of the same task is a loss; a task with an id of one and the content of another is not.
    for (text, now) in &other {
        let tool = |text: &str| {
            let from = text.find(r#""toolName":""#).map(|at| at + 12)?;
            text[from..].split('"').next().map(str::to_owned)
        };
        let was_discarded = text.starts_with("missing");
        if !was_discarded && tool(text) != tool(now) {
            return Err(format!("wrong data was served: {now}\ninstead of {text}"));
        }
    }
    Ok(match (missing, damaged, other.len()) {
        (0, 0, 0) => "serves all".to_owned(),
        (0, damaged, 0) => format!("serves the rest, says that {damaged} are damaged"),
        (missing, damaged, older) => {
            format!("SILENT LOSS: {missing} tasks missing, {older} older (and {damaged} damaged)")
        }
    })
}

/// Inflicts each damage on a copy of its own, two at a time, and prints what came of it.
fn inflict_all(clean: bool, damages: &[Damage]) {
    let files = scratch();
    let stopped = prepare(&files.path().join("data"), clean);
    let try_one = &|damage: &Damage| {
        let tried = catch_unwind(AssertUnwindSafe(|| try_on_a_copy(&stopped, damage)));
        tried.unwrap_or_else(|panic| Err(panic.downcast_ref::<String>().cloned().unwrap_or_default()))
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let (left, right) = damages.split_at(damages.len() / 2);
        let halves =
            [left, right].map(|half| scope.spawn(move || half.iter().map(try_one).collect::<Vec<_>>()));
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    let mut failures = String::new();
    for (damage, result) in damages.iter().zip(results) {
        match result {
            Ok(verdict) => eprintln!("{}: {verdict}", damage.what),
            Err(failure) => write!(failures, "\n{}: {failure}", damage.what).unwrap(),
        }
    }
    assert!(failures.is_empty(), "after a {} stop:{failures}", if clean { "clean" } else { "unclean" });
}

#[test]
fn a_clean_stop_and_then_cut_or_missing_files_never_hang_or_panic_a_start() {
    inflict_all(true, &coarse());
}

#[test]
fn an_unclean_stop_and_then_cut_or_missing_files_never_hang_or_panic_a_start() {
    inflict_all(false, &coarse());
}

#[test]
fn a_flipped_byte_in_the_first_half_after_a_clean_stop_never_hangs_or_panics_a_start() {
    inflict_all(true, &flips(seed(), 0..5000));
}

#[test]
fn a_flipped_byte_in_the_second_half_after_a_clean_stop_never_hangs_or_panics_a_start() {
    inflict_all(true, &flips(seed(), 5000..10_000));
}

#[test]
fn a_flipped_byte_in_the_first_half_after_an_unclean_stop_never_hangs_or_panics_a_start() {
    inflict_all(false, &flips(seed(), 0..5000));
}

#[test]
fn a_flipped_byte_in_the_second_half_after_an_unclean_stop_never_hangs_or_panics_a_start() {
    inflict_all(false, &flips(seed(), 5000..10_000));
}
