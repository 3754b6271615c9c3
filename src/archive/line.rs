//! The frame of a line: its number, what it says, and a checksum that binds it to the line before.
//!
//! ```text
//! {"line":2,"task":{...},"sum":"0123456789abcdef"}
//! ```

use xxhash_rust::xxh3::xxh3_64_with_seed;

const OPENING: &[u8] = b"{\"line\":";
const CLOSING: &[u8] = b",\"sum\":\"";
/// The closing, sixteen digits, a quote and a brace.
const TAIL_BYTES: usize = CLOSING.len() + 16 + 2;

/// Where the chain of lines has come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain {
    /// The number of the newest line.
    pub(super) line: u64,
    sum: u64,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It is no line of an export.
    Shape,
    /// It has another number.
    Number(u64),
    /// It was changed.
    Sum,
}

impl Chain {
    /// Writes the next line: `member` is its one member beside number and checksum.
    pub(super) fn write(&mut self, name: &str, member: &[u8]) -> Vec<u8> {
        self.line += 1;
        let mut line = Vec::with_capacity(member.len() + name.len() + TAIL_BYTES + 40);
        line.extend_from_slice(OPENING);
        line.extend_from_slice(self.line.to_string().as_bytes());
        line.extend_from_slice(b",\"");
        line.extend_from_slice(name.as_bytes());
        line.extend_from_slice(b"\":");
        line.extend_from_slice(member);
        self.sum = xxh3_64_with_seed(&line, self.sum);
        line.extend_from_slice(CLOSING);
        line.extend_from_slice(format!("{:016x}", self.sum).as_bytes());
        line.extend_from_slice(b"\"}\n");
        line
    }

    /// Reads the next line, without its line break: the name of its member, and the member.
    pub(super) fn read<'a>(&mut self, line: &'a [u8]) -> Result<(&'a str, &'a [u8]), Wrong> {
        let body = line.len().checked_sub(TAIL_BYTES).and_then(|end| line.get(..end)).ok_or(Wrong::Shape)?;
        let tail = line.get(body.len()..).unwrap_or_default();
        let digits = tail.strip_prefix(CLOSING).and_then(|rest| rest.strip_suffix(b"\"}"));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok()).ok_or(Wrong::Shape)?;
        let rest = body.strip_prefix(OPENING).ok_or(Wrong::Shape)?;
        let comma = rest.iter().position(|byte| *byte == b',').ok_or(Wrong::Shape)?;
        let (number, rest) = rest.split_at(comma);
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        let number: u64 = number.ok_or(Wrong::Shape)?;
        if number != self.line + 1 {
            return Err(Wrong::Number(number));
        }
        let sum = xxh3_64_with_seed(body, self.sum);
        if digits != format!("{sum:016x}") {
            return Err(Wrong::Sum);
        }
        let rest = rest.strip_prefix(b",\"").ok_or(Wrong::Shape)?;
        let quote = rest.iter().position(|byte| *byte == b'"').ok_or(Wrong::Shape)?;
        let (name, member) = rest.split_at(quote);
        let name = std::str::from_utf8(name).map_err(|_text| Wrong::Shape)?;
        let member = member.strip_prefix(b"\":").ok_or(Wrong::Shape)?;
        (self.line, self.sum) = (number, sum);
        Ok((name, member))
    }
}
