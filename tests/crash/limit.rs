//! A limit on the size of files (`ulimit -f`): the system ends who writes beyond it by a signal, unless it is handled.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::disk::{if_possible, run};
use crate::files::scratch;
use crate::harness::attempt::{Serving, Start};
use crate::kept::{Kept, Made};

const DEADLINE: Duration = Duration::from_secs(30);
/// The size of most arguments.
const SIZE: usize = 50_000;

/// A broker none of whose files may be longer.
fn limited(data: &Path, bytes: u64) -> Start {
    Start::on(data).under(["prlimit".to_owned(), format!("--fsize={bytes}")])
}

/// Makes tasks until the broker ends by itself.
fn until_it_ends(broker: &Serving, kept: &mut Kept) {
    let mut link = broker.link();
    let end = Instant::now() + DEADLINE;
    while !matches!(kept.make(&mut link, SIZE), Made::Gone) {
        assert!(Instant::now() < end, "it goes on with files that may not grow");
    }
}

#[test]
fn a_limit_on_the_size_of_files_is_told_by_name_and_loses_nothing() {
    let possible = || run("prlimit", &[&"--version"]).map(drop);
    let Some(()) = if_possible("limits on files", &["prlimit"], possible) else { return };
    for mib in [6, 9, 20] {
        let files = scratch();
        let data = files.path().join("data");
        let mut kept = Kept::default();
        let mut broker = limited(&data, mib << 20).serve();
        until_it_ends(&broker, &mut kept);
        let ended = broker.ended(DEADLINE).unwrap_or_else(|said| panic!("it goes on: {said:#?}"));
        eprintln!("{mib}: {} {ended:?}", kept.len());
        assert!(ended.status.code().is_some_and(|code| code != 0), "{ended:?}");
        ended.assert_no_panic_text();
        let text = ended.text();
        assert!(text.contains("File too large") && text.contains(&data.display().to_string()), "{ended:?}");
        let broker = Start::on(&data).serve();
        kept.check(&mut broker.link()).unwrap();
        kept.must_make(&mut broker.link(), SIZE);
        assert!(broker.stop(DEADLINE).status.success());
    }
}

#[test]
fn a_start_under_a_limit_on_the_size_of_files_is_refused_by_name_and_loses_nothing() {
    let possible = || run("prlimit", &[&"--version"]).map(drop);
    let Some(()) = if_possible("limits on files", &["prlimit"], possible) else { return };
    let files = scratch();
    let data = files.path().join("data");
    let mut kept = Kept::default();
    for bytes in [0, 4096, 1 << 20, 3 << 20] {
        let refused = limited(&data, bytes).refuse(DEADLINE);
        assert!(refused.text().contains("File too large"), "{bytes}: {refused:?}");
        let broker = Start::on(&data).serve();
        kept.check(&mut broker.link()).unwrap();
        kept.must_make(&mut broker.link(), SIZE);
        broker.kill9();
    }
}
