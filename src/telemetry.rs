//! Logs: on standard error, as text or as JSON lines. No secret, no token, no payload at any level.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::config::LogFormat;

/// Starts logging for the process. `RUST_LOG` chooses what is logged; `info` without it. Of the libraries below
/// only warnings are shown unless it names them: some log what they read from a socket.
pub fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_unset| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::NONE)
        .with_target(false);
    let started = match format {
        LogFormat::Text => subscriber.with_ansi(false).try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    };
    // Already started: by a test in the same process. One is enough.
    if started.is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string);
            // Without the message: it may quote what a client sent.
            tracing::error!(place, "a thread panicked");
        }));
    }
}
