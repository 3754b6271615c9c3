//! Logs: on standard error, as text or as JSON lines. No secret, no token, no payload at any level.

mod line;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use self::line::Lines;
use crate::config::LogFormat;
use crate::{panics, stderr};

/// Libraries that log what they read from a socket or a file. Whatever `RUST_LOG` says about everything, of these
/// only warnings are shown; whoever names one of them there gets what was asked for.
const TALKATIVE: [&str; 6] = ["h2", "hyper", "hyper_util", "sled", "tower", "tower_http"];

/// Why nothing can be logged.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// `RUST_LOG` cannot be understood.
    #[error("RUST_LOG: {0}")]
    Filter(#[from] ParseError),
    /// There is no thread to write lines.
    #[error("a thread for the log: {0}")]
    Thread(#[from] std::io::Error),
}

/// Starts logging for a service: no line is waited for. `RUST_LOG` chooses what is logged: `info`, and what it says
/// beyond that.
///
/// # Errors
/// [`StartError`]: a wish that is not understood would be a broker that nobody can see into.
pub fn start(format: LogFormat) -> Result<(), StartError> {
    start_at(format, "info")?;
    Ok(stderr::start(|lines| tracing::warn!(lines, "lines of the log were lost: they found no reader"))?)
}

/// The same for a command that ends by itself and says on its own what it does: warnings, unless `RUST_LOG` wants more.
/// They are written at once, so that they stand where they belong among the other things that it writes.
///
/// # Errors
/// As for [`start`].
pub fn start_quietly() -> Result<(), StartError> {
    start_at(LogFormat::Text, "warn")
}

fn start_at(format: LogFormat, usual: &str) -> Result<(), StartError> {
    let filter = filter(std::env::var("RUST_LOG").ok().as_deref(), usual)?;
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr::Line::default)
        .with_ansi(false)
        // A line that cannot be written is lost. Complaining about it on the same broken stream would end the process.
        .log_internal_errors(false)
        .event_format(Lines(format))
        .try_init();
    // Already started: by a test in the same process. One is enough.
    if started.is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            // Without the message: it may quote what a client sent.
            let place = panic.location().map(ToString::to_string);
            let place = place.as_deref().map(panics::shown);
            if panic.location().is_some_and(panics::is_told) {
                tracing::debug!(place, "a library panicked, and whoever called it says what that means");
            } else {
                tracing::error!(place, "a thread panicked");
            }
        }));
    }
    Ok(())
}

fn filter(wish: Option<&str>, usual: &str) -> Result<EnvFilter, StartError> {
    let wish = wish.filter(|wish| !wish.trim().is_empty()).unwrap_or(usual);
    let quiet = TALKATIVE.iter().filter(|library| !wish.contains(**library));
    let quiet = quiet.map(|library| format!("{library}=warn"));
    // The first is for whoever names only a part of the program, or misspells a level: a later one replaces it.
    let directives: Vec<_> = [usual.to_owned()].into_iter().chain(quiet).chain([wish.to_owned()]).collect();
    Ok(EnvFilter::builder().parse(directives.join(","))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_could_tell_secrets_are_quiet_unless_they_are_named() {
        let all = filter(Some("trace"), "info").unwrap().to_string();
        assert!(all.contains("hyper=warn") && all.contains("h2=warn") && all.contains("trace"), "{all}");
        let named = filter(Some("info,hyper=trace"), "info").unwrap().to_string();
        assert!(named.contains("hyper=trace") && !named.contains("hyper=warn"), "{named}");
        assert!(filter(None, "info").unwrap().to_string().contains("info"));
    }

    #[test]
    fn a_wish_that_says_nothing_about_the_level_does_not_silence_the_broker() {
        assert!(filter(Some("nonsense"), "info").unwrap().to_string().contains("info"));
        let quiet = filter(Some("error"), "info").unwrap().to_string();
        assert!(quiet.contains("error") && !quiet.contains("info"), "{quiet}");
        let refused = filter(Some("foo=bar=baz"), "info").unwrap_err().to_string();
        assert!(refused.starts_with("RUST_LOG: "), "{refused}");
    }
}
