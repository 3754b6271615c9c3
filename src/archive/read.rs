//! Reading an export: complete and unchanged, or refused with the number of the line.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use task_broker_core::{OwnerFrom, PayloadRef, Task, Timestamp};
use xxhash_rust::xxh3::xxh3_128;

use super::line::{Chain, Wrong};
use super::{FORMAT, task};

/// The longest line that is believed, in bytes. A task at the default limits (1,088 payloads of 4 MiB, written in
/// base64) has less; a file without line breaks must not fill the memory.
pub const MAX_LINE_BYTES: u64 = 8 << 30;

/// What the first line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Header {
    /// The version of the format.
    pub task_broker_export: u32,
    /// The id of the store that was exported.
    pub store: String,
    /// The store's time when the export began, in milliseconds since 1970.
    pub time: u64,
    /// What wrote it.
    pub program: String,
    /// What makes the subjects of the store. An export of `sub` does not say so: programs from before there was a choice
    /// read it, and refuse the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner_from: Option<String>,
}

impl Header {
    /// The first line of an export.
    pub(super) fn new(store: &str, owner_from: OwnerFrom, time: u64) -> Self {
        Self {
            task_broker_export: FORMAT,
            store: store.to_owned(),
            time,
            program: concat!("task-broker ", env!("CARGO_PKG_VERSION")).to_owned(),
            owner_from: (owner_from != OwnerFrom::Sub).then(|| owner_from.to_string()),
        }
    }

    /// What makes the subjects of the store; `None` if this program does not know it.
    #[must_use]
    pub fn owner_from(&self) -> Option<OwnerFrom> {
        self.owner_from.as_ref().map_or(Some(OwnerFrom::Sub), |name| name.parse().ok())
    }
}

/// What the last line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ending {
    /// How many tasks there are.
    pub tasks: u64,
    /// The exclusive or of a hash of each task's text.
    pub digest: String,
    /// The store's time when the export ended, in milliseconds since 1970.
    pub time: u64,
}

impl Ending {
    /// The store's time when the export ended: a store that is made of it must not show less.
    #[must_use]
    pub const fn clock(&self) -> Timestamp {
        Timestamp::from_millis(self.time)
    }
}

/// What a line is.
#[derive(Debug)]
pub enum Part {
    /// The first one.
    Header(Header),
    /// A task with its payloads.
    Task(Box<Task>, Vec<(PayloadRef, Bytes)>),
    /// The last one.
    End(Ending),
}

/// Why an export is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ArchiveError {
    /// The number of the line, from 1.
    pub line: u64,
    /// What is wrong with it. No content.
    pub what: String,
}

/// Takes the lines of an export in their order.
#[derive(Debug, Default)]
pub struct Reader {
    chain: Chain,
    tasks: u64,
    digest: u128,
    ended: bool,
}

impl Reader {
    /// A reader that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn wrong(&self, what: impl Into<String>) -> ArchiveError {
        ArchiveError { line: self.chain.line + 1, what: what.into() }
    }

    /// Takes the next line, with its line break.
    ///
    /// # Errors
    /// [`ArchiveError`] when it is not the next line of an export, unchanged.
    pub fn line(&mut self, line: &[u8]) -> Result<Part, ArchiveError> {
        if self.ended {
            return Err(self.wrong("something follows the last line of the export"));
        }
        let Some(line) = line.strip_suffix(b"\n") else {
            return Err(self.wrong("it is cut: the export is not complete"));
        };
        let number = self.chain.line + 1;
        // What is wrong with the content is told with the number of this line, not of the one behind it.
        let wrong = |what: String| ArchiveError { line: number, what };
        let (name, member) = self.chain.read(line).map_err(|broken| {
            wrong(match broken {
                Wrong::Shape if number == 1 => "this is no export of task-broker".to_owned(),
                Wrong::Shape => "it is no line of an export: it was changed or cut".to_owned(),
                Wrong::Number(found) => {
                    format!("it says that it is line {found}: a line is missing, doubled or moved")
                }
                Wrong::Sum => {
                    "its checksum is wrong: it was changed, or the one before it is another".to_owned()
                }
            })
        })?;
        match (number, name) {
            (1, "header") => {
                let header: Header = from_json(member).map_err(wrong)?;
                if header.task_broker_export != FORMAT {
                    let found = header.task_broker_export;
                    return Err(wrong(format!(
                        "the export has format {found}, this program knows format {FORMAT}"
                    )));
                }
                Ok(Part::Header(header))
            }
            (2.., "task") => {
                let stored: task::Stored<'_> = from_json(member).map_err(wrong)?;
                let (task, payloads) = stored.into_task().map_err(wrong)?;
                self.tasks += 1;
                self.digest ^= xxh3_128(member);
                Ok(Part::Task(Box::new(task), payloads))
            }
            (2.., "end") => {
                let ending: Ending = from_json(member).map_err(wrong)?;
                let (tasks, digest) = (self.tasks, hex(self.digest));
                if (ending.tasks, &ending.digest) != (tasks, &digest) {
                    let told = ending.tasks;
                    return Err(wrong(format!(
                        "it tells of {told} tasks, and {tasks} were read, with another digest"
                    )));
                }
                self.ended = true;
                Ok(Part::End(ending))
            }
            _ => Err(wrong("a line of this kind cannot stand here".to_owned())),
        }
    }

    /// Says whether everything was there, once there are no more lines.
    ///
    /// # Errors
    /// [`ArchiveError`] when the last line was not seen.
    pub fn finish(&self) -> Result<(), ArchiveError> {
        if self.ended {
            return Ok(());
        }
        Err(self.wrong("the export ends before its last line: it is not complete"))
    }
}

fn from_json<'a, T: Deserialize<'a>>(member: &'a [u8]) -> Result<T, String> {
    // Where it stops, and nothing of what stands there: that may be a payload.
    serde_json::from_slice(member)
        .map_err(|error| format!("its content is not what it must be, near byte {}", error.column()))
}

/// 32 digits.
pub(super) fn hex(number: u128) -> String {
    format!("{number:032x}")
}

/// What [`hex`] has written.
pub(super) fn unhex(text: &str) -> Option<u128> {
    let number = u128::from_str_radix(text, 16).ok()?;
    (hex(number) == text).then_some(number)
}
