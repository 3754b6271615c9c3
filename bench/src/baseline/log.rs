//! A durable log in its simplest form: one file, one thread, one sync for each group.
//!
//! This is the floor under every store that acknowledges only what is on the disk: no index, no check, nothing that
//! could be read again.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

/// Records waiting for the writer. More than there are connections, so that the queue never is the limit.
const QUEUE: usize = 1024;

/// The length of a preallocated file. The writer starts again at its beginning when it has come to the end.
const PREALLOCATED: u64 = 256 << 20;

/// No plain log of a measurement grows beyond this; the disk is shared.
const MAX_LENGTH: u64 = 16 << 30;

/// How the file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Append: each sync also has to make the new length durable
    Append,
    /// Over zeros written and synced beforehand: a sync is of the data alone
    Preallocated,
}

impl Mode {
    /// Its name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Preallocated => "preallocated",
        }
    }
}

/// The log's side for those who append.
#[derive(Debug)]
pub(super) struct Log {
    queue: mpsc::Sender<Record>,
}

/// One record, and whom to tell when it is durable.
struct Record {
    payload: Bytes,
    done: oneshot::Sender<()>,
}

impl Log {
    /// Makes the file and starts the writer. It ends with the log, or after a write or a sync that failed: then
    /// nothing is acknowledged any more.
    pub(super) fn open(path: &Path, mode: Mode, record_bytes: usize) -> Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let file = file.with_context(|| path.display().to_string())?;
        if mode == Mode::Preallocated {
            fill_with_zeros(&file).context("preallocating")?;
        }
        let (queue, records) = mpsc::channel(QUEUE);
        let writer = Writer { file, mode, record_bytes, at: 0 };
        std::thread::Builder::new().name("log-writer".to_owned()).spawn(move || writer.run(records))?;
        Ok(Self { queue })
    }

    /// Appends a record that begins with `payload`; it is durable when this returns.
    pub(super) async fn append(&self, payload: Bytes) -> Result<()> {
        let (done, durable) = oneshot::channel();
        if self.queue.send(Record { payload, done }).await.is_err() {
            bail!("the log has failed");
        }
        durable.await.context("the log has failed")
    }
}

fn fill_with_zeros(file: &File) -> std::io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut at = 0;
    while at < PREALLOCATED {
        file.write_all_at(&zeros, at)?;
        at += zeros.len() as u64;
    }
    file.sync_all()
}

struct Writer {
    file: File,
    mode: Mode,
    record_bytes: usize,
    at: u64,
}

impl Writer {
    fn run(mut self, mut records: mpsc::Receiver<Record>) {
        let mut group = Vec::with_capacity(QUEUE);
        let mut buffer = Vec::new();
        while records.blocking_recv_many(&mut group, QUEUE) > 0 {
            buffer.clear();
            for record in &group {
                let end = buffer.len() + self.record_bytes;
                let kept = record.payload.len().min(self.record_bytes);
                buffer.extend_from_slice(record.payload.get(..kept).unwrap_or_default());
                buffer.resize(end, 0);
            }
            // Dropping the group unanswered, and the queue with it, tells everybody.
            if self.write(&buffer).is_err() {
                return;
            }
            for record in group.drain(..) {
                // A client that has gone away need not be told.
                record.done.send(()).ok();
            }
        }
    }

    fn write(&mut self, buffer: &[u8]) -> Result<()> {
        let length = buffer.len() as u64;
        match self.mode {
            Mode::Append if self.at + length > MAX_LENGTH => bail!("the log is full"),
            Mode::Preallocated if self.at + length > PREALLOCATED => self.at = 0,
            Mode::Append | Mode::Preallocated => {}
        }
        self.file.write_all_at(buffer, self.at)?;
        self.file.sync_data()?;
        self.at += length;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_acknowledged_record_is_in_the_file_at_its_full_size() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = Log::open(&path, Mode::Append, 16).unwrap();
        log.append(Bytes::from_static(b"short")).await.unwrap();
        log.append(Bytes::from_static(b"longer than a record")).await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"short\0\0\0\0\0\0\0\0\0\0\0longer than a re");
        Log::open(&path, Mode::Append, 16).unwrap_err();
    }
}
