//! A log that nobody reads: the pipe behind standard error is full, as behind a collector that hangs.

use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::{Broker, DEADLINE, ended, free_address, get, post, program, start_with, wait_for};

/// How long an orderly end may take where nothing is open: far less than the drain time, and the wait for a reader in it.
const END: Duration = Duration::from_secs(5);

/// A pipe without room for a single byte.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    let usual = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, usual | OFlags::NONBLOCK).unwrap();
    for step in [4096, 1] {
        while writer.write(&vec![b'\n'; step]).is_ok() {}
    }
    // Whoever has the other handles of it waits, as with any pipe.
    fcntl_setfl(&writer, usual).unwrap();
    (reader, writer)
}

/// Ends it with SIGTERM, as fast as one whose log is read.
fn stop(broker: &mut Broker) {
    let began = Instant::now();
    assert!(broker.stop().success());
    assert!(began.elapsed() < END, "{:?}", began.elapsed());
}

fn serves(address: SocketAddr) {
    let create = r#"{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"tool"}}"#;
    let answer = post(address, b"", create);
    assert!(answer.contains("\"taskId\""), "{answer}");
}

/// More requests than there is room for lines about them.
fn flood(address: SocketAddr) {
    let id = "i".repeat(64);
    let request = format!("POST /rpc HTTP/1.1\r\nhost: x\r\nx-request-id: {id}\r\ncontent-length: 0\r\n\r\n");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    while dropped(address) == 0 {
        for _ in 0..500 {
            stream.write_all(request.as_bytes()).unwrap();
            skip_answer(&mut answers);
        }
    }
}

fn skip_answer(answers: &mut BufReader<TcpStream>) {
    let mut length = 0;
    loop {
        let mut line = String::new();
        assert_ne!(answers.read_line(&mut line).unwrap(), 0, "the connection ended");
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    answers.read_exact(&mut vec![0; length]).unwrap();
}

/// What the metric says.
fn dropped(address: SocketAddr) -> u64 {
    let metrics = get(address, "/metrics").unwrap();
    let lines = metrics.lines().find_map(|line| line.strip_prefix("task_broker_log_lines_dropped_total "));
    lines.expect("the metric").parse().unwrap()
}

#[test]
fn a_log_that_nobody_reads_holds_up_neither_the_start_nor_calls_nor_the_end() {
    for (level, format) in [("info", "text"), ("debug", "json"), ("trace", "text")] {
        let files = tempfile::tempdir().unwrap();
        let (_reader, writer) = full_pipe();
        let store = format!("sled:{}", files.path().join("data").display());
        let mut broker = start_with(&["--store", &store, "--log-format", format], level, writer.into());
        serves(broker.address);
        if level == "debug" {
            flood(broker.address);
            serves(broker.address);
        }
        stop(&mut broker);
    }
}

/// With `2>&1` the last word of the program would go the same way.
#[test]
fn a_refused_start_ends_although_nobody_reads_why() {
    let (_reader, writer) = full_pipe();
    let mut refused = program()
        .args(["serve", "--store", "memory:", "--listen", &free_address().to_string()])
        .args(["--jwt-secret-file", "/no/such/file", "--jwt-audience", "task-broker"])
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .spawn()
        .unwrap();
    let began = Instant::now();
    assert_eq!(ended(&mut refused).code(), Some(1));
    assert!(began.elapsed() < END, "{:?}", began.elapsed());
}

#[test]
fn a_reader_that_comes_back_is_told_what_it_has_missed_and_gets_the_last_lines() {
    let (mut reader, writer) = full_pipe();
    let mut broker = start_with(&["--store", "memory:"], "debug", Stdio::from(writer));
    flood(broker.address);
    let reading = std::thread::spawn(move || {
        let mut log = String::new();
        reader.read_to_string(&mut log).unwrap();
        log
    });
    // Lines find room again.
    wait_for("nothing is lost any more", || {
        let before = dropped(broker.address);
        serves(broker.address);
        dropped(broker.address) == before
    });
    let lost = dropped(broker.address);
    stop(&mut broker);
    let log = reading.join().unwrap();
    let told: u64 = log
        .lines()
        .filter(|line| line.contains("lines of the log were lost"))
        .map(|line| line.split_once("lines=").unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert_eq!(told, lost);
    let lines: Vec<_> = log.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines[0].contains("--store memory: keeps nothing"), "the first: {}", lines[0]);
    assert!(lines.last().unwrap().ends_with(" stopped"), "the last: {:?}", lines.last());
    let whole = lines.iter().all(|line| line.starts_with("20") && line.contains("Z "));
    assert!(whole, "each line is whole");
}
