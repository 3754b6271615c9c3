//! Status messages.

/// How many bytes of a message or a reason are kept (WIRE.md, "What a command does").
pub(crate) const MAX_MESSAGE_BYTES: usize = 1024;

pub(crate) const STARTED: &str = "Task started";
pub(crate) const AWAITING_INPUT: &str = "Awaiting client input";
pub(crate) const RESUMED: &str = "Task resumed";
pub(crate) const COMPLETED: &str = "Task completed";
pub(crate) const CANCELLED: &str = "Task cancelled";

/// The copy of a standard message that needs no memory of its own, for whoever reads tasks back.
#[must_use]
pub fn standard_message(text: &str) -> Option<&'static str> {
    [STARTED, AWAITING_INPUT, RESUMED, COMPLETED, CANCELLED].into_iter().find(|message| *message == text)
}

/// The beginning of `message` that fits into [`MAX_MESSAGE_BYTES`], cut between two characters. A message that is
/// too long is for people to read; refusing the command for its sake would lose the transition.
pub(crate) fn cut(message: &str) -> &str {
    let end = message.floor_char_boundary(MAX_MESSAGE_BYTES);
    message.get(..end).unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use super::{MAX_MESSAGE_BYTES, cut};

    #[test]
    fn a_message_is_cut_on_a_character_boundary() {
        assert_eq!(cut("short"), "short");
        let long = "é".repeat(600);
        assert_eq!(cut(&long).len(), 1024);
        let odd = format!("x{long}");
        assert_eq!(cut(&odd).len(), 1023, "the character across the boundary is left out whole");
        assert!(cut(&odd).len() <= MAX_MESSAGE_BYTES);
    }
}
