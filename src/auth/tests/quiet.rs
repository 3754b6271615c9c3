//! Nothing of a key or a token gets out: not by `Debug`, not by an answer, not into a log.

use std::{
    fmt::Debug,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use super::*;
use crate::auth::{KeyError, SecretFile};

/// Whether the text shows the bytes in any form that `Debug` could give them.
fn shows(text: &str, hidden: &str) -> bool {
    let decimal = format!("{:?}", hidden.as_bytes());
    let decimal = decimal.trim_matches(['[', ']']);
    let hex: Vec<String> = hidden.bytes().map(|byte| format!("{byte:02x}")).collect();
    [hidden, decimal, &hex.concat(), &base64url(hidden.as_bytes())].iter().any(|form| text.contains(*form))
}

#[test]
fn debug_shows_no_secret() {
    let secret = secret(SECRET);
    let keys = Keys::new(vec![Key::hs256(&secret)]);
    let broker = broker();
    let things: [&dyn Debug; 5] = [&secret, &Key::hs256(&secret), &keys, &broker, &SecretFile];
    for thing in things {
        for text in [format!("{thing:?}"), format!("{thing:#?}")] {
            assert!(!shows(&text, SECRET), "{text}");
            assert!(!shows(&text, &SECRET[..8]), "{text}");
        }
    }
    assert_eq!(format!("{secret:?}"), "Secret(redacted)");
    assert!(format!("{broker:?}").contains("HS256"));
}

#[test]
fn errors_of_a_secret_file_show_nothing_of_it() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let path = directory.path().join("secret");
    std::fs::write(&path, SECRET.repeat(2000)).expect("written");
    let error: KeyError = SecretFile::read(&path).expect_err("too large");
    assert!(!shows(&format!("{error} {error:?}"), SECRET));
    assert!(error.to_string().contains(path.to_str().expect("UTF-8")), "{error}");
}

/// A log that is kept in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

#[test]
fn logs_and_answers_have_fixed_texts_only() {
    const MARK: &str = "MaRkEr";
    let quoted = format!("{MARK:?}");
    let mark = Some(quoted.as_str());
    let header = format!(r#"{{"alg":"HS256","kid":"{MARK}"}}"#);
    let good = token(&header, claims(&[("sub", mark)]));
    let tokens = [
        MARK.to_owned(),
        format!("{MARK}.{MARK}.{MARK}"),
        token(format!(r#"{{"alg":"{MARK}"}}"#), claims(&[])),
        token(format!(r#"{{"alg":"HS256","typ":["{MARK}"]}}"#), claims(&[])),
        token(format!(r#"{{"alg":"HS256","crit":["{MARK}"]}}"#), claims(&[])),
        token(format!(r#"{{"alg":"HS256","jku":"{MARK}"}}"#), claims(&[])),
        token(&header, MARK),
        token(&header, claims(&[("exp", mark)])),
        token(&header, claims(&[("nbf", mark)])),
        token(&header, claims(&[("aud", mark)])),
        token(&header, claims(&[("sub", Some(&format!("[{quoted}]")))])),
        token(&header, claims(&[("scp", Some(&format!("{{{quoted}:1}}")))])),
        format!("{good}{MARK}"),
    ];
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let broker = broker();
    tracing::subscriber::with_default(subscriber, || {
        assert!(ask(&broker, &good).is_ok());
        for token in &tokens {
            let refusal = ask(&broker, token).expect_err("a bad token");
            let answer = format!("{} {refusal} {refusal:?}", refusal.challenge());
            assert!(!shows(&answer, MARK), "{answer}");
        }
    });
    let text = log.text();
    assert!(text.contains("DEBUG") && text.contains(Unauthorized::BAD_EXP.description), "{text}");
    assert_eq!(
        text.lines().count(),
        tokens.len(),
        "one line for each refusal, none for a good token: {text}"
    );
    assert!(!shows(&text, MARK) && !shows(&text, SECRET), "{text}");
}
