//! The settings: one list of flags, each with a `TASK_BROKER_*` variable of the same name.

mod settings;
mod tools;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand, ValueEnum};
use task_broker_core::OwnerFrom;

use crate::auth::{AuthConfigError, AuthMode, KeyError, PemError};
use crate::http::TlsError;
use crate::keysource::{FileError, UrlError};
use crate::tools::{Input, Output};
use crate::traces::Endpoint;
use crate::trust::without_secrets;

pub use self::settings::Settings;
pub use self::tools::{Completions, Healthcheck, Man, Shell};

/// Owns the state of MCP tasks (SEP-2663), so that MCP servers keep none.
#[derive(Debug, Parser)]
#[command(name = "task-broker", version, about, propagate_version = true, after_help = tools::PROGRAM_EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve until SIGTERM or SIGINT.
    ///
    /// Without further flags: on loopback, with an embedded store in ./data and without authentication.
    #[command(after_long_help = tools::SERVE_EXAMPLES, allow_negative_numbers = true)]
    Serve(Box<Serve>),
    /// Make a token for development, signed with a secret file, and print it.
    Token(Token),
    /// Ask a running broker whether it can take and keep a command.
    #[command(after_help = tools::HEALTHCHECK_EXAMPLES)]
    Healthcheck(Healthcheck),
    /// Print a script that completes this program's commands and flags in a shell.
    #[command(after_help = tools::COMPLETIONS_EXAMPLES)]
    Completions(Completions),
    /// Print a manual page.
    Man(Man),
    /// Look at everything in a store that no broker is using, and change nothing.
    ///
    /// Reads CURRENT, the journal, the head of every task and every byte of every payload, and proves their checksums and
    /// that nothing is missing. Prints one line starting with FAULT for each thing that is wrong, then a summary. Exit
    /// codes: 0 sound, 1 damaged, 2 it could not look. The store is copied for this (the database in it cannot be opened
    /// without the right to change it), which needs a quarter more room than its files have, and 64 MiB, in --scratch.
    Check(Check),
    /// Write a store that no broker is using anew, so that its files are as large as what they hold.
    ///
    /// Copies all tasks into new files beside the old ones, proves the copy, and only then removes the old ones; a crash at
    /// any moment leaves a store with everything. Says first how much free room it needs. `serve` does this by itself when
    /// there is little to do and the files are larger than 256 MiB and than three times what they hold.
    Compact(Compact),
    /// Write all tasks with their payloads to a file, as lines of JSON.
    ///
    /// With --store from a directory that no broker is using, with --url from a running broker (needs a token with the scope
    /// tasks:admin, or a broker on loopback without authentication). The file is complete and proved, or there is none. It
    /// contains every payload: keep it as safe as the store.
    Export(Export),
    /// Fill a store that has no tasks from an export: all of it, or nothing.
    ///
    /// The directory is made if it is not there. Tasks keep their ids, times and TTLs, so that what has expired since the
    /// export is gone at the first start.
    Import(Import),
}

/// Settings of `task-broker check`.
#[derive(Clone, Debug, Args)]
pub struct Check {
    /// The store: sled:DIRECTORY.
    #[arg(long, value_name = "STORE")]
    pub store: StoreUrl,
    /// Directory for the private copy, which is removed in the end; the system's temporary directory without it.
    #[arg(long, value_name = "DIRECTORY")]
    pub scratch: Option<PathBuf>,
}

/// Settings of `task-broker compact`.
#[derive(Clone, Debug, Args)]
pub struct Compact {
    /// The store: sled:DIRECTORY.
    #[arg(long, value_name = "STORE")]
    pub store: StoreUrl,
}

/// Settings of `task-broker export`.
#[derive(Clone, Debug, Args)]
#[command(group(clap::ArgGroup::new("source").required(true)))]
pub struct Export {
    /// A store that no broker is using: sled:DIRECTORY.
    #[arg(long, value_name = "STORE", group = "source")]
    pub store: Option<StoreUrl>,
    /// A running broker: http://HOST:PORT or https://HOST:PORT.
    #[arg(long, value_name = "URL", group = "source")]
    pub url: Option<String>,
    /// File with the root certificates that the running broker's certificate is checked against; the system's without it.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub ca: Option<PathBuf>,
    /// File with the token for the running broker.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub token_file: Option<PathBuf>,
    /// Where to: a file, which gets its name when it is complete, or - for standard output.
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub out: Output,
}

/// Settings of `task-broker import`.
#[derive(Clone, Debug, Args)]
pub struct Import {
    /// The store to fill: sled:DIRECTORY.
    #[arg(long, value_name = "STORE")]
    pub store: StoreUrl,
    /// Where from: a file that an export has written, or - for standard input.
    #[arg(long = "in", value_name = "FILE")]
    pub from: Input,
}

/// Settings of `task-broker serve`.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// Address and port to listen on; port 0 takes a free one and logs it.
    #[arg(
        long,
        env = "TASK_BROKER_LISTEN",
        default_value = "127.0.0.1:8420",
        value_name = "ADDRESS",
        value_parser = address
    )]
    pub listen: SocketAddr,

    /// Where tasks are kept: sled:DIRECTORY, or memory: (lost at every stop).
    #[arg(
        long,
        env = "TASK_BROKER_STORE",
        hide_env_values = true,
        default_value = "sled:./data",
        value_name = "STORE"
    )]
    pub store: StoreUrl,

    /// Refuse to start when there is no store yet, instead of making one.
    #[arg(long, env = "TASK_BROKER_EXISTING_STORE_ONLY", value_parser = BoolishValueParser::new())]
    pub existing_store_only: bool,

    /// How much of the embedded store is cached, in bytes. Its real use of memory is about three times this, and
    /// twice as much during a compaction.
    #[arg(long, env = "TASK_BROKER_CACHE_BYTES", default_value_t = 64 << 20, value_name = "BYTES")]
    pub cache_bytes: u64,

    /// Write sled's file anew, while the broker serves, when it is larger than so many bytes and three times as large as
    /// what it holds.
    #[arg(
        long,
        env = "TASK_BROKER_COMPACT_ABOVE_BYTES",
        default_value_t = Self::COMPACT_ABOVE_BYTES,
        value_name = "BYTES"
    )]
    pub compact_above_bytes: u64,

    /// Never write it anew, however much larger it is than what it holds.
    #[arg(long, env = "TASK_BROKER_NO_COMPACTION")]
    pub no_compaction: bool,

    /// Whether callers need a token: required (the default as soon as there is a key), optional (none is
    /// anonymous), off (the default without a key; everybody is anonymous and may name owners).
    #[arg(long, env = "TASK_BROKER_AUTH", value_name = "MODE")]
    pub auth: Option<AuthMode>,

    /// File with the secret of HS256 tokens; one trailing newline is not part of it.
    #[arg(long, env = "TASK_BROKER_JWT_SECRET_FILE", value_name = "FILE")]
    pub jwt_secret_file: Option<PathBuf>,

    /// File with a public key in PEM, of whoever signs the tokens: RSA (RS256 to RS512, PS256 to PS512), P-256 (ES256),
    /// P-384 (ES384) or Ed25519 (EdDSA); repeatable.
    #[arg(long, env = "TASK_BROKER_JWT_PUBLIC_KEY_FILE", value_name = "FILE", value_delimiter = ',')]
    pub jwt_public_key_file: Vec<PathBuf>,

    /// File with a key set (JWKS); read again when it changes.
    #[arg(long, env = "TASK_BROKER_JWKS_FILE", value_name = "FILE")]
    pub jwks_file: Option<PathBuf>,

    /// Where the issuer publishes its key set: https, or http on a loopback address. Until it has been read once, the
    /// broker is not ready.
    #[arg(long, env = "TASK_BROKER_JWKS_URL", hide_env_values = true, value_name = "URL")]
    pub jwks_url: Option<String>,

    /// File with the root certificates that the key server's certificate is checked against, in place of the system's.
    #[arg(long, env = "TASK_BROKER_JWKS_CA_FILE", value_name = "FILE")]
    pub jwks_ca_file: Option<PathBuf>,

    /// How often the key set is fetched when there is no reason to, in seconds.
    #[arg(long, env = "TASK_BROKER_JWKS_REFRESH_SECS", default_value_t = 300, value_name = "SECONDS")]
    pub jwks_refresh_secs: u64,

    /// The least time between two fetches, however many tokens name keys that are not known, in seconds.
    #[arg(long, env = "TASK_BROKER_JWKS_COOLDOWN_SECS", default_value_t = 10, value_name = "SECONDS")]
    pub jwks_cooldown_secs: u64,

    /// What makes the subject of a token: sub alone, or iss-sub (both with a space between them), for tokens of several
    /// issuers. A store keeps the one that it was made with.
    #[arg(long, env = "TASK_BROKER_OWNER_FROM", default_value_t = OwnerFrom::Sub, value_name = "CLAIMS")]
    pub owner_from: OwnerFrom,

    /// Audience that tokens must name; repeatable. Needed as soon as there is a key.
    #[arg(long, env = "TASK_BROKER_JWT_AUDIENCE", value_name = "AUDIENCE", value_delimiter = ',')]
    pub jwt_audience: Vec<String>,

    /// Issuer that tokens must name.
    #[arg(long, env = "TASK_BROKER_JWT_ISSUER", value_name = "ISSUER")]
    pub jwt_issuer: Option<String>,

    /// How far clocks may differ when `exp` and `nbf` are checked, in seconds.
    #[arg(long, env = "TASK_BROKER_JWT_LEEWAY_SECS", default_value_t = 30, value_name = "SECONDS")]
    pub jwt_leeway_secs: u64,

    /// File with the certificate of the listening socket and its chain, in PEM; read again when it changes. With it, only
    /// TLS is spoken.
    #[arg(long, env = "TASK_BROKER_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// File with the private key of the certificate, in PEM.
    #[arg(long, env = "TASK_BROKER_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Listen on an address that is not loopback although anonymous callers are let in.
    #[arg(long, env = "TASK_BROKER_ALLOW_ANONYMOUS_NETWORK", value_parser = BoolishValueParser::new())]
    pub allow_anonymous_network: bool,

    /// Origin whose web pages may call; repeatable. All others are refused.
    #[arg(
        long,
        env = "TASK_BROKER_ALLOW_ORIGIN",
        hide_env_values = true,
        value_name = "ORIGIN",
        value_delimiter = ','
    )]
    pub allow_origin: Vec<String>,

    /// TTL of a task whose creator names none, in milliseconds from creation.
    #[arg(long, env = "TASK_BROKER_DEFAULT_TTL_MS", default_value_t = 300_000, value_name = "MS")]
    pub default_ttl_ms: u64,

    /// Largest TTL; a larger one is cut to it, in milliseconds.
    #[arg(long, env = "TASK_BROKER_MAX_TTL_MS", default_value_t = 2_592_000_000, value_name = "MS")]
    pub max_ttl_ms: u64,

    /// Poll interval that clients are advised to keep when the creator names none, in milliseconds.
    #[arg(long, env = "TASK_BROKER_DEFAULT_POLL_INTERVAL_MS", default_value_t = 2000, value_name = "MS")]
    pub default_poll_interval_ms: u32,

    /// Largest payload (arguments, result, error, one question, one answer), in bytes.
    #[arg(long, env = "TASK_BROKER_MAX_PAYLOAD_BYTES", default_value_t = 4 << 20, value_name = "BYTES")]
    pub max_payload_bytes: u32,

    /// Largest request body, in bytes.
    #[arg(long, env = "TASK_BROKER_MAX_BODY_BYTES", default_value_t = 8 << 20, value_name = "BYTES")]
    pub max_body_bytes: u32,

    /// Calls that are worked on at once; of a batch, each eight that are done one after the other count as one.
    #[arg(long, env = "TASK_BROKER_MAX_REQUESTS", default_value_t = 4096, value_name = "N")]
    pub max_requests: u32,

    /// Calls that one subject may make in a second, each of a batch counted; as many, and at least 100, at once. All
    /// anonymous callers are one subject. Without it there is no such limit.
    #[arg(long, env = "TASK_BROKER_RATE_LIMIT_PER_SUBJECT", value_name = "N")]
    pub rate_limit_per_subject: Option<u32>,

    /// Open `store/wait` calls; 0 refuses all.
    #[arg(long, env = "TASK_BROKER_MAX_WAITS", default_value_t = 20_000, value_name = "N")]
    pub max_waits: u32,

    /// Open `store/wait` calls of one subject.
    #[arg(long, env = "TASK_BROKER_MAX_WAITS_PER_SUBJECT", default_value_t = 2000, value_name = "N")]
    pub max_waits_per_subject: u32,

    /// Open streams; 0 refuses all.
    #[arg(long, env = "TASK_BROKER_MAX_STREAMS", default_value_t = 20_000, value_name = "N")]
    pub max_streams: u32,

    /// Open streams of one subject.
    #[arg(long, env = "TASK_BROKER_MAX_STREAMS_PER_SUBJECT", default_value_t = 2000, value_name = "N")]
    pub max_streams_per_subject: u32,

    /// Live tasks of one owner.
    #[arg(long, env = "TASK_BROKER_QUOTA_TASKS_PER_OWNER", default_value_t = 100_000, value_name = "N")]
    pub quota_tasks_per_owner: u64,

    /// Bytes that the live tasks of one owner may take.
    #[arg(long, env = "TASK_BROKER_QUOTA_BYTES_PER_OWNER", default_value_t = 1 << 30, value_name = "BYTES")]
    pub quota_bytes_per_owner: u64,

    /// Live tasks of all owners together.
    #[arg(long, env = "TASK_BROKER_MAX_TASKS", default_value_t = 5_000_000, value_name = "N")]
    pub max_tasks: u64,

    /// How long open calls may take after SIGTERM, in seconds.
    #[arg(long, env = "TASK_BROKER_DRAIN_SECS", default_value_t = 10, value_name = "SECONDS")]
    pub drain_secs: u64,

    /// Form of the log on standard error. RUST_LOG chooses what is logged.
    #[arg(long, env = "TASK_BROKER_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,

    /// Collector that traces are sent to, by OTLP over HTTP or HTTPS, such as http://127.0.0.1:4318. None are made without.
    #[arg(long, env = "TASK_BROKER_OTLP_ENDPOINT", hide_env_values = true, value_name = "URL")]
    pub otlp_endpoint: Option<Endpoint>,
}

/// Settings of `task-broker token`.
#[derive(Clone, Debug, Args)]
pub struct Token {
    /// File with the secret.
    #[arg(long, value_name = "FILE")]
    pub secret_file: PathBuf,
    /// Subject: whose token it is.
    #[arg(long, value_name = "SUBJECT")]
    pub sub: String,
    /// Audience: the service it is for.
    #[arg(long, value_name = "AUDIENCE")]
    pub aud: String,
    /// Scopes, separated by spaces.
    #[arg(long, value_name = "SCOPES")]
    pub scope: Option<String>,
    /// Issuer.
    #[arg(long, value_name = "ISSUER")]
    pub iss: Option<String>,
    /// How long it is good, in seconds.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    pub lifetime_secs: u64,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where tasks are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// In memory: lost at every stop.
    Memory,
    /// In an embedded store in this directory.
    Sled(PathBuf),
}

impl StoreUrl {
    /// The directory of an embedded store.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Sled(path) => Some(path),
            Self::Memory => None,
        }
    }
}

/// A value that is refused is told, but not what may be a password in it.
#[must_use]
pub fn without_passwords(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
        && value.contains(['@', '?'])
    {
        let told = without_secrets(value);
        error.insert(ContextKind::InvalidValue, ContextValue::String(told));
    }
    error
}

impl Serve {
    const COMPACT_ABOVE_BYTES: u64 = 256 << 20;
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_error| {
        "expected an IP address and a port, such as 127.0.0.1:8420 or [::1]:8420".to_owned()
    })
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sled", path)) if path.starts_with('~') => {
                Err("only a shell knows what ~ is, and only at the beginning of a word".to_owned())
            }
            Some(("sled", path)) if !path.is_empty() && path.trim() == path => {
                Ok(Self::Sled(PathBuf::from(path)))
            }
            _ => Err("expected sled:DIRECTORY or memory:".to_owned()),
        }
    }
}

/// Settings that are wrong or contradict each other. Each text names the flag.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The secret file.
    #[error("--jwt-secret-file: {0}")]
    Secret(#[from] KeyError),
    /// A public key.
    #[error("--jwt-public-key-file: {0}")]
    PublicKey(#[from] PemError),
    /// The file with the key set.
    #[error("--jwks-file: {0}")]
    KeySet(#[from] FileError),
    /// The key server.
    #[error(transparent)]
    KeyServer(#[from] UrlError),
    /// The listening socket's certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Authentication as a whole.
    #[error(transparent)]
    Auth(#[from] AuthConfigError),
    /// An open door.
    #[error(
        "--listen {0} is not a loopback address and anonymous callers are let in; give a key, such as \
         --jwt-public-key-file, with --auth required, or --allow-anonymous-network if that is meant"
    )]
    AnonymousNetwork(SocketAddr),
    /// A default above its maximum.
    #[error("--default-ttl-ms {default} is above --max-ttl-ms {maximum}")]
    DefaultTtl {
        /// The default.
        default: u64,
        /// The maximum.
        maximum: u64,
    },
    /// A number out of bounds.
    #[error("{flag} {rule}")]
    OutOfBounds {
        /// The flag.
        flag: &'static str,
        /// What it must be.
        rule: &'static str,
    },
}

#[cfg(test)]
mod tests;
