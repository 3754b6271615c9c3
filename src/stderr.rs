//! Standard error of a service, which must not wait for whoever reads it.
//!
//! A write to a pipe that nobody reads does not end, and whatever logs would stand still with it: calls, and the orderly
//! stop. So lines go into a buffer with a bound, and a thread of its own writes them. Lines that find no room are lost,
//! counted, and told of when there is room again.
//!
//! `tracing-appender` does almost this, but when its queue is full at the end it says so on standard output, which mostly
//! has the same reader, and waits for it for ever.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How many bytes wait to be written, and as many may be on their way: some thousand lines, so that a reader may rest for
/// a moment, and little beside what a broker takes otherwise.
const BUFFER_BYTES: usize = 1 << 20;

/// How long the end of the process waits for the last lines: whoever still reads has them by then.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The one of the process, as there is one standard error. None in programs that write as any program does.
static LINES: OnceLock<Lines> = OnceLock::new();

/// Starts the thread that writes; `tell` is called on it with how many lines were lost since the last time. A second start
/// changes nothing.
///
/// # Errors
/// The operating system gives no thread.
pub fn start(tell: fn(u64)) -> io::Result<()> {
    if LINES.get().is_none() {
        let lines = Lines::begin(io::stderr(), tell)?;
        // Somebody else was quicker: the thread of this one has nothing to do.
        LINES.set(lines).unwrap_or_default();
    }
    Ok(())
}

/// Writes a line in the order of all lines. What is written at once stays together, or is lost together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line;

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match LINES.get() {
            Some(lines) => {
                lines.push(bytes);
                Ok(bytes.len())
            }
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many lines were lost in the life of the process.
#[must_use]
pub fn lost_lines() -> u64 {
    LINES.get().map_or(0, Lines::lost)
}

/// Waits a moment for the last lines when it is dropped, at the end of the process.
#[derive(Debug)]
#[must_use]
pub struct LastLines;

impl Drop for LastLines {
    fn drop(&mut self) {
        if let Some(lines) = LINES.get() {
            lines.finish(LAST_WAIT);
        }
    }
}

/// Lines on their way; clones share them.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to write, or nothing any more.
    changed: Condvar,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Whole lines.
    waiting: Vec<u8>,
    /// Whether lines have been taken out that are not written yet.
    writing: bool,
}

impl Lines {
    fn begin(out: impl Write + Send + 'static, tell: impl Fn(u64) + Send + 'static) -> io::Result<Self> {
        let lines = Self::default();
        let writer = lines.clone();
        std::thread::Builder::new().name("stderr".to_owned()).spawn(move || writer.write_all(out, tell))?;
        Ok(lines)
    }

    fn push(&self, line: &[u8]) {
        let mut state = self.0.state.lock();
        if line.len() > BUFFER_BYTES.saturating_sub(state.waiting.len()) {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.waiting.extend_from_slice(line);
        self.0.changed.notify_all();
    }

    fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Waits for lines and takes all of them: when it is called again, they are written.
    fn take(&self) -> Vec<u8> {
        let mut state = self.0.state.lock();
        state.writing = false;
        self.0.changed.notify_all();
        self.0.changed.wait_while(&mut state, |state| state.waiting.is_empty());
        state.writing = true;
        std::mem::take(&mut state.waiting)
    }

    fn write_all(&self, mut out: impl Write, tell: impl Fn(u64)) {
        let (mut told, mut works) = (0, true);
        loop {
            let lines = self.take();
            let lost = self.lost();
            // Now there is room for it, behind the last lines before the gap. Where writing fails the news would only
            // be one more line that is lost, again and again.
            if works && lost > told {
                tell(lost - told);
                told = lost;
            }
            // One by one: other processes may write to the same file, and a line stays whole.
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                works = out.write_all(line).is_ok();
                if !works {
                    self.0.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Waits until all lines are written, at most for `limit`.
    fn finish(&self, limit: Duration) {
        let mut state = self.0.state.lock();
        let open = |state: &mut State| state.writing || !state.waiting.is_empty();
        self.0.changed.wait_while_for(&mut state, open, limit);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Takes a line when somebody asks for one.
    struct Pipe(SyncSender<String>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(String::from_utf8(bytes.to_vec()).unwrap()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines() -> (Lines, Receiver<String>, Receiver<u64>) {
        let (out, read) = sync_channel(0);
        let (tell, told) = sync_channel(8);
        (Lines::begin(Pipe(out), move |lost| tell.send(lost).unwrap()).unwrap(), read, told)
    }

    #[test]
    fn lines_come_out_one_by_one_in_their_order() {
        let (lines, read, _told) = lines();
        for n in 0..100 {
            lines.push(format!("line {n}\n").as_bytes());
        }
        for n in 0..100 {
            assert_eq!(read.recv_timeout(LONG).unwrap(), format!("line {n}\n"));
        }
        lines.finish(LONG);
        assert_eq!(lines.lost(), 0);
    }

    #[test]
    fn what_finds_no_room_is_lost_counted_and_told_once_there_is_room() {
        let (lines, read, told) = lines();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        // As many as fit while the first one is held up, and as many that do not.
        let fit = BUFFER_BYTES / line.len();
        (0..3 * fit).for_each(|_| lines.push(&line));
        let lost = lines.lost();
        assert!(lost >= fit as u64, "{lost}");
        for _ in 0..3 * fit as u64 - lost {
            read.recv_timeout(LONG).unwrap();
        }
        lines.finish(LONG);
        assert_eq!(told.try_iter().sum::<u64>(), lost);
        lines.push(b"more\n");
        assert_eq!(read.recv_timeout(LONG).unwrap(), "more\n");
        assert_eq!(lines.lost(), lost, "there is room again");
    }

    #[test]
    fn the_end_does_not_wait_for_a_reader_that_is_gone() {
        let (lines, _read, _told) = lines();
        lines.push(b"nobody reads this\n");
        lines.finish(Duration::from_millis(1));
        lines.push(b"nor this\n");
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_holds_nothing_up() {
        let (lines, read, told) = lines();
        drop(read);
        for n in 1..100 {
            lines.push(b"lost\n");
            lines.finish(LONG);
            assert_eq!(lines.lost(), n);
        }
        assert_eq!(told.try_iter().count(), 0, "there is nobody to tell");
    }
}
