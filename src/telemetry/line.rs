//! How an event becomes one line of the log: always one, whatever a value holds, and never a long one.
//!
//! The library's own formats write the text of a value as it is, line breaks and terminal codes included. Here every
//! character that could end a line, hide text or move a cursor is written as its escape, and every value is cut.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::LogFormat;
use crate::request;

/// How much of one value is shown, in bytes: enough for a path and a reason, and too little to fill a disk.
const VALUE_BYTES: usize = 1024;

/// Stands where a value was cut.
const CUT: &str = "[...]";

/// Writes lines in one of the forms.
#[derive(Debug)]
pub(super) struct Lines(pub(super) LogFormat);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let level = event.metadata().level().as_str();
        let mut values = Values::default();
        event.record(&mut values);
        let id = request::id();
        let id = id.as_ref().map(request::RequestId::as_str);
        let line = match self.0 {
            LogFormat::Text => text(&time, level, id, &values),
            LogFormat::Json => json(&time, level, id, &values),
        };
        writer.write_str(&line)
    }
}

/// The values of an event.
#[derive(Default)]
struct Values {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

enum Value {
    /// A number or a truth value: it is written as it is.
    Plain(String),
    Text(String),
}

impl Values {
    fn text(&mut self, field: &Field, text: String) {
        if field.name() == "message" {
            self.message = text;
        } else {
            self.fields.push((field.name(), Value::Text(text)));
        }
    }

    fn plain(&mut self, field: &Field, value: &impl ToString) {
        self.fields.push((field.name(), Value::Plain(value.to_string())));
    }
}

impl Visit for Values {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut bounded = Bounded::default();
        // An error says that it was cut, or that a value cannot be shown; what there is of it is shown.
        write!(bounded, "{value:?}").unwrap_or_default();
        self.text(field, bounded.0);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let mut bounded = Bounded::default();
        bounded.write_str(value).unwrap_or_default();
        self.text(field, bounded.0);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field, &value);
    }
}

/// A text that stops growing.
#[derive(Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = VALUE_BYTES.saturating_sub(self.0.len());
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
        self.0.push_str(CUT);
        Err(fmt::Error)
    }
}

/// Whether a character is shown by its escape: controls, and what ends a line, has no width or turns the direction.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// `time LEVEL message name=value request=id`; values that are more than a word stand in quotes.
fn text(time: &str, level: &str, id: Option<&str>, values: &Values) -> String {
    let mut line = format!("{time} {level:>5} ");
    escape_text(&mut line, &values.message, false);
    let id = id.map(|id| ("request", Value::Text(id.to_owned())));
    for (name, value) in values.fields.iter().chain(&id) {
        line.extend([" ", name, "="]);
        match value {
            Value::Plain(value) => line.push_str(value),
            Value::Text(value) => {
                let word = |character: char| !character.is_whitespace() && !"\"'=\\".contains(character);
                let quoted = value.is_empty() || !value.chars().all(|it| word(it) && !is_hidden(it));
                line.push_str(if quoted { "\"" } else { "" });
                escape_text(&mut line, value, quoted);
                line.push_str(if quoted { "\"" } else { "" });
            }
        }
    }
    line.push('\n');
    line
}

fn escape_text(line: &mut String, value: &str, quoted: bool) {
    for character in value.chars() {
        match character {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            '"' | '\\' if quoted => line.extend(['\\', character]),
            _ if is_hidden(character) => line.extend(character.escape_unicode()),
            _ => line.push(character),
        }
    }
}

/// One JSON object.
fn json(time: &str, level: &str, id: Option<&str>, values: &Values) -> String {
    let mut line = format!("{{\"timestamp\":\"{time}\",\"level\":\"{level}\",\"fields\":{{\"message\":");
    json_string(&mut line, &values.message);
    for (name, value) in &values.fields {
        line.push(',');
        json_string(&mut line, name);
        line.push(':');
        match value {
            Value::Plain(value) => line.push_str(value),
            Value::Text(value) => json_string(&mut line, value),
        }
    }
    line.push('}');
    if let Some(id) = id {
        line.push_str(",\"request\":");
        json_string(&mut line, id);
    }
    line.push_str("}\n");
    line
}

fn json_string(line: &mut String, value: &str) {
    line.push('"');
    for character in value.chars() {
        match character {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            '"' | '\\' => line.extend(['\\', character]),
            _ if is_hidden(character) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(line, "\\u{unit:04x}").unwrap_or_default();
                }
            }
            _ => line.push(character),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::request::{Current, RequestId};

    /// A log that is kept in memory.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, act: impl FnOnce()) -> String {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .event_format(Lines(format))
            .finish();
        tracing::subscriber::with_default(subscriber, act);
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    }

    const ODD: [&str; 9] = [
        "x\n2030-01-01T00:00:00Z  INFO forged line",
        "x\r\nforged",
        "\u{1b}[2J\u{1b}]0;pwn\u{7}",
        "\u{85}",
        "\u{2028}\u{2029}",
        "\u{9b}31m\u{9d}0;pwn\u{9c}",
        "\u{202e}gnp.exe\u{2066}",
        "\" forged=\"yes\\",
        "\u{e0041}\u{feff}\0\u{7f}",
    ];

    #[test]
    fn an_event_is_one_line_whatever_its_values_hold() {
        for format in [LogFormat::Text, LogFormat::Json] {
            for odd in ODD {
                let text =
                    logged(format, || tracing::info!(shown = %odd, debug = ?odd, string = odd, "told {odd}"));
                let line = text.strip_suffix('\n').unwrap();
                assert!(!line.chars().any(is_hidden), "{line:?}");
                assert_eq!(text.lines().count(), 1, "{text:?}");
                if format == LogFormat::Json {
                    let record: serde_json::Value = serde_json::from_str(line).unwrap();
                    for name in ["shown", "string"] {
                        assert_eq!(record["fields"][name], odd, "nothing is lost");
                    }
                    assert_eq!(record["fields"]["message"], format!("told {odd}"));
                }
            }
        }
    }

    #[test]
    fn a_long_value_is_cut_on_a_character() {
        let long = "é".repeat(500_000);
        for format in [LogFormat::Text, LogFormat::Json] {
            let text =
                logged(format, || tracing::info!(shown = %long, debug = ?long, string = long, "{long}"));
            assert!(text.len() < 5 * VALUE_BYTES, "{}", text.len());
            assert_eq!(text.matches(CUT).count(), 4);
        }
    }

    #[test]
    fn numbers_are_numbers_and_words_stand_alone() {
        let log = || {
            tracing::warn!(
                n = 7_u64,
                minus = -1_i64,
                yes = true,
                none = None::<u64>,
                word = "off",
                two = "a b",
                "done"
            );
        };
        let text = logged(LogFormat::Text, log);
        assert!(text.ends_with(" WARN done n=7 minus=-1 yes=true word=off two=\"a b\"\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&logged(LogFormat::Json, log)).unwrap();
        let fields = serde_json::json!({"message": "done", "n": 7, "minus": -1, "yes": true, "word": "off", "two": "a b"});
        assert_eq!((&json["fields"], &json["level"]), (&fields, &"WARN".into()));
    }

    #[test]
    fn a_line_of_a_request_has_its_id() {
        let current = Current::new(RequestId::given_or_new(Some(b"abc")));
        let mut current = Some(current);
        for format in [LogFormat::Text, LogFormat::Json] {
            let current =
                current.take().unwrap_or_else(|| Current::new(RequestId::given_or_new(Some(b"abc"))));
            let text = logged(format, || request::finish(current, || tracing::info!("done")));
            assert!(text.contains("request=abc") || text.contains("\"request\":\"abc\""), "{text}");
        }
        assert!(!logged(LogFormat::Text, || tracing::info!("done")).contains("request"));
    }
}
