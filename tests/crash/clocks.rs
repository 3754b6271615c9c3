//! A wall clock that steps by hours, in both directions, while a broker runs and between two: no task expires early, and
//! none comes back.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::files::scratch;
use crate::harness::attempt::{Serving, Start};
use crate::harness::link::Link;
use crate::shim::Shim;

const DEADLINE: Duration = Duration::from_secs(12);
const HOUR: i64 = 3600;
const HOUR_MS: u64 = 3_600_000;
/// By how much time may go back with a kill: the newest frame of the journal tells the time, and may be a little older.
const SINCE_LAST_FRAME_MS: u64 = 5000;

fn create(link: &mut Link, ttl_ms: u64) -> String {
    let created = link.ask("store/create", &json!({"toolName": "timed", "ttlMs": ttl_ms})).result();
    created["task"]["taskId"].as_str().unwrap().to_owned()
}

/// The milliseconds until it expires; nothing if it is gone, in every view.
fn remaining(link: &mut Link, id: &str) -> Option<u64> {
    let get = link.ask("store/get", &json!({"taskId": id}));
    let statuses = link.ask("store/statuses", &json!({"taskIds": [id]})).result();
    let listed = link.ask("store/list", &json!({"limit": 1000})).result();
    let is_listed = listed["tasks"].as_array().unwrap().iter().any(|row| row["task"]["taskId"] == id);
    if get.is_error() {
        assert_eq!(get.error().kind, "task_not_found", "{get}");
        assert_eq!((&statuses["statuses"][id], is_listed), (&Value::Null, false), "get says that it is gone");
        return None;
    }
    Some(get.result()["remainingMs"].as_u64().unwrap())
}

fn until_gone(link: &mut Link, id: &str) -> Duration {
    let start = Instant::now();
    loop {
        let get = link.ask("store/get", &json!({"taskId": id}));
        if get.is_error() {
            return start.elapsed();
        }
        assert!(start.elapsed() < DEADLINE, "it does not expire: {get}");
    }
}

fn serve(shim: &Shim, data: &Path) -> Serving {
    Start::on(data).under(shim.clocked()).serve()
}

#[test]
fn a_wall_clock_that_steps_while_a_broker_runs_expires_nothing_early_and_brings_nothing_back() {
    let Some(shim) = Shim::new() else { return };
    let files = scratch();
    let broker = serve(&shim, &files.path().join("data"));
    let mut link = broker.link();
    let long = create(&mut link, HOUR_MS);
    let mut gone = Vec::new();
    let mut left = HOUR_MS;
    for hours in [5, -5, 48, -48, 0] {
        let short = create(&mut link, 700);
        shim.step(hours * HOUR);
        assert!(remaining(&mut link, &short).is_some(), "{hours} h expired a task early");
        let took = until_gone(&mut link, &short);
        assert!(took > Duration::from_millis(300), "{hours} h expired a task after {took:?}");
        gone.push(short);
        let now = remaining(&mut link, &long).expect("an hour has not passed");
        assert!(now <= left && now + 30_000 > HOUR_MS, "{hours} h: {now} ms remain after {left}");
        left = now;
        for id in &gone {
            assert_eq!(remaining(&mut link, id), None, "{hours} h brought a task back");
        }
    }
}

/// The milliseconds in a line about clocks that are apart, or together again.
fn ahead_ms(broker: &mut Serving, part: &str) -> i64 {
    let line: Value = serde_json::from_str(&broker.next_line(part, DEADLINE)).unwrap();
    line["fields"]["ahead_ms"].as_i64().unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn clocks_that_are_apart_are_told_once_after_a_step_and_at_a_start_and_so_is_the_end() {
    let Some(shim) = Shim::new() else { return };
    let files = scratch();
    let data = files.path().join("data");
    let mut broker = serve(&shim, &data);
    let near = |ms: i64, hours: i64| (ms - hours * HOUR * 1000).abs() < 60_000;
    shim.step(3 * HOUR);
    let ahead = ahead_ms(&mut broker, "are apart");
    assert!(near(ahead, -3), "{ahead}");
    shim.step(0);
    let ahead = ahead_ms(&mut broker, "are together again");
    assert!(ahead.abs() <= 500, "{ahead}");
    create(&mut broker.link(), HOUR_MS);
    let said = broker.stop(DEADLINE);
    assert_eq!(said.text().matches("are apart").count(), 1, "{said:?}");
    // The store has kept a later time.
    shim.step(-5 * HOUR);
    let mut broker = serve(&shim, &data);
    let ahead = ahead_ms(&mut broker, "are apart");
    assert!(near(ahead, 5), "{ahead}");
    let said = broker.stop(DEADLINE);
    assert_eq!(said.text().matches("are apart").count(), 1, "{said:?}");
}

/// The shim works: without it in front a step is not seen, with it a start is at another time.
#[test]
fn a_broker_that_starts_at_another_time_sees_it() {
    let Some(shim) = Shim::new() else { return };
    let files = scratch();
    let created_at = |hours: i64| {
        shim.step(hours * HOUR);
        let broker = serve(&shim, &files.path().join(format!("data{hours}")));
        let created = broker.link().ask("store/create", &json!({"toolName": "timed"})).result();
        created["task"]["createdAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second()
    };
    let hours = (created_at(5) - created_at(-5)) / HOUR;
    assert!((9..=10).contains(&hours), "{hours} h apart");
}

/// Stops the broker, steps the clock, and starts it again.
fn restart(shim: &Shim, broker: Serving, data: &Path, kill: bool, hours: i64) -> Serving {
    if kill {
        broker.kill9();
    } else {
        assert!(broker.stop(DEADLINE).status.success());
    }
    shim.step(hours * HOUR);
    serve(shim, data)
}

fn steps_over_restarts(kill: bool) {
    let Some(shim) = Shim::new() else { return };
    let files = scratch();
    let data = files.path().join("data");
    let mut broker = serve(&shim, &data);
    let mut link = broker.link();
    let gone = create(&mut link, 200);
    until_gone(&mut link, &gone);
    let long = create(&mut link, 100 * HOUR_MS);
    // A clock that is set back: time goes on from where it was.
    for hours in [-5, -48, -2] {
        let short = create(&mut link, 5000);
        let left = remaining(&mut link, &long).unwrap();
        broker = restart(&shim, broker, &data, kill, hours);
        link = broker.link();
        let now = remaining(&mut link, &long).expect("a clock that was set back expires nothing");
        assert!(
            now <= left + SINCE_LAST_FRAME_MS && left <= now + 60_000,
            "{hours} h: {now} ms remain after {left}"
        );
        assert!(remaining(&mut link, &short).is_some(), "{hours} h expired a task early");
        let took = until_gone(&mut link, &short);
        assert!(took < Duration::from_secs(6), "{hours} h: it took {took:?}");
        assert_eq!(remaining(&mut link, &gone), None, "{hours} h brought a task back");
    }
    // A clock that is far ahead: what is over by then is gone, and stays so when the clock is set right.
    let hour = create(&mut link, HOUR_MS);
    for hours in [9, -9, 0] {
        broker = restart(&shim, broker, &data, kill, hours);
        link = broker.link();
        assert_eq!(remaining(&mut link, &hour), None, "{hours} h brought a task back");
        assert_eq!(remaining(&mut link, &gone), None, "{hours} h brought a task back");
        assert!(remaining(&mut link, &long).is_some(), "{hours} h expired a task early");
    }
}

#[test]
fn a_wall_clock_that_steps_between_a_stop_and_a_start_expires_nothing_early_and_brings_nothing_back() {
    steps_over_restarts(false);
}

#[test]
fn a_wall_clock_that_steps_between_a_kill_and_a_start_expires_nothing_early_and_brings_nothing_back() {
    steps_over_restarts(true);
}

/// Somebody was told that a task is gone; the broker is killed in the next moment, and comes back with an earlier clock.
#[test]
fn a_task_that_was_shown_expired_just_before_a_kill_does_not_come_back_with_an_earlier_clock() {
    let Some(shim) = Shim::new() else { return };
    for round in 0..10 {
        let files = scratch();
        let data = files.path().join("data");
        shim.step(0);
        let broker = serve(&shim, &data);
        let mut link = broker.link();
        let short = create(&mut link, 230 + 20 * round);
        until_gone(&mut link, &short);
        let broker = restart(&shim, broker, &data, true, -5);
        assert_eq!(remaining(&mut broker.link(), &short), None, "round {round}: it is back");
    }
}
