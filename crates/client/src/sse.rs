//! Server-sent events, as far as `store/watch` uses them: comments, and messages of `id` and `data`.

use std::collections::VecDeque;

/// Takes a stream apart. What it holds is bounded by the size of one message and of one piece of the stream.
#[derive(Debug)]
pub(crate) struct Decoder {
    maximum: usize,
    line: Vec<u8>,
    data: Vec<u8>,
    /// The last byte was a carriage return, which ends a line with or without a line feed behind it.
    after_return: bool,
    ready: VecDeque<Vec<u8>>,
}

/// A message is larger than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Decoder {
    pub(crate) fn new(maximum: usize) -> Self {
        Self { maximum, line: Vec::new(), data: Vec::new(), after_return: false, ready: VecDeque::new() }
    }

    /// The data of the next whole message.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<(), TooLarge> {
        for byte in piece {
            match byte {
                b'\n' if self.after_return => self.after_return = false,
                b'\n' | b'\r' => {
                    self.after_return = *byte == b'\r';
                    self.end_line()?;
                }
                byte => {
                    self.after_return = false;
                    if self.line.len() >= self.maximum {
                        return Err(TooLarge);
                    }
                    self.line.push(*byte);
                }
            }
        }
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), TooLarge> {
        if self.line.is_empty() {
            if !self.data.is_empty() {
                self.ready.push_back(std::mem::take(&mut self.data));
            }
            return Ok(());
        }
        // Everything but data is left out: the position is in the data too, and comments only show life.
        if let Some(value) = self.line.strip_prefix(b"data:") {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            if self.data.len().saturating_add(value.len()) >= self.maximum {
                return Err(TooLarge);
            }
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
        }
        self.line.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(decoder: &mut Decoder) -> Vec<String> {
        std::iter::from_fn(|| decoder.next()).map(|data| String::from_utf8(data).unwrap()).collect()
    }

    #[test]
    fn messages_come_out_whole_however_the_stream_is_cut() {
        let stream = b":\n\nid: 1\ndata: one\n\n: comment\n\nid: 2\r\ndata:two\r\ndata: more\r\n\r\nevent: x\rdata: three\r\rdata: un";
        for size in 1..stream.len() {
            let mut decoder = Decoder::new(100);
            for piece in stream.chunks(size) {
                decoder.feed(piece).unwrap();
            }
            assert_eq!(all(&mut decoder), ["one", "two\nmore", "three"], "in pieces of {size}");
        }
    }

    #[test]
    fn a_line_or_a_message_without_end_is_refused() {
        let mut decoder = Decoder::new(10);
        assert_eq!(decoder.feed(&[b'x'; 11]), Err(TooLarge));
        let mut decoder = Decoder::new(10);
        assert_eq!(decoder.feed(b"data: 1234\ndata: 5678\ndata: 9\n"), Err(TooLarge));
    }
}
