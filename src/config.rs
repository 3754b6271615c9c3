//! The settings: one list of flags, each with a `TASK_BROKER_*` variable of the same name.

mod tools;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use task_broker_core::{Limits, OwnerFrom, Quota};

use crate::auth::{
    AuthConfigError, AuthMode, Authenticator, Key, KeyError, Keyring, Keys, PemError, Policy, PublicKeyFile,
    SHORT_SECRET_BYTES, SecretFile, Source,
};
use crate::broker::SeatLimits;
use crate::clock::Clock;
use crate::http::{HttpSettings, Tls, TlsError};
use crate::keysource::{Fetcher, FileError, KeyFile, KeyServer, KeySources, UrlError};
use crate::tools::{Input, Output};
use crate::traces::Endpoint;

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
    #[command(after_long_help = tools::SERVE_EXAMPLES)]
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
    /// without the right to change it), so it needs as much room as the store has in --scratch.
    Check(Check),
    /// Write a store that no broker is using anew, so that its files are as large as what they hold.
    ///
    /// Copies all tasks into new files beside the old ones, proves the copy, and only then removes the old ones; a crash at
    /// any moment leaves a store with everything. Says first how much free room it needs. `serve` does this by itself at
    /// start when the files are larger than 256 MiB and than four times what they hold.
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
pub struct Export {
    /// A store that no broker is using: sled:DIRECTORY.
    #[arg(long, value_name = "STORE", required_unless_present = "url", conflicts_with = "url")]
    pub store: Option<StoreUrl>,
    /// A running broker: http://HOST:PORT or https://HOST:PORT.
    #[arg(long, value_name = "URL")]
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
    #[arg(long, env = "TASK_BROKER_LISTEN", default_value = "127.0.0.1:8420", value_name = "ADDRESS")]
    pub listen: SocketAddr,

    /// Where tasks are kept: sled:DIRECTORY, or memory: (lost at every stop).
    #[arg(long, env = "TASK_BROKER_STORE", default_value = "sled:./data", value_name = "STORE")]
    pub store: StoreUrl,

    /// Refuse to start when there is no store yet, instead of making one.
    #[arg(long, env = "TASK_BROKER_EXISTING_STORE_ONLY", value_parser = BoolishValueParser::new())]
    pub existing_store_only: bool,

    /// How much of the embedded store is cached, in bytes. Its real use of memory is about three times this.
    #[arg(long, env = "TASK_BROKER_CACHE_BYTES", default_value_t = 64 << 20, value_name = "BYTES")]
    pub cache_bytes: u64,

    /// Never write the store anew at start, however much larger its files are than what they hold.
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
    #[arg(long, env = "TASK_BROKER_JWKS_URL", value_name = "URL")]
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
    #[arg(long, env = "TASK_BROKER_ALLOW_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
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

    /// Calls that are worked on at once; of a batch each eight count as one.
    #[arg(long, env = "TASK_BROKER_MAX_REQUESTS", default_value_t = 4096, value_name = "N")]
    pub max_requests: u32,

    /// Calls that one subject may make in a second, each of a batch counted; as many, and at least 100, at once. All
    /// anonymous callers are one subject. Without it there is no such limit.
    #[arg(long, env = "TASK_BROKER_RATE_LIMIT_PER_SUBJECT", value_name = "N")]
    pub rate_limit_per_subject: Option<NonZeroU32>,

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
    #[arg(long, env = "TASK_BROKER_OTLP_ENDPOINT", value_name = "URL")]
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

/// Settings that were checked, in the form in which the rooms take them.
#[derive(Debug)]
pub struct Settings {
    /// Who sends a request.
    pub auth: Authenticator,
    /// What is too much.
    pub limits: Limits,
    /// The HTTP side.
    pub http: HttpSettings,
    /// Keys that change.
    pub keys: KeySources,
    /// TLS for the listening socket.
    pub tls: Option<Arc<Tls>>,
    /// How long open calls may take at the end.
    pub drain: Duration,
    /// Where traces are sent.
    pub traces: Option<Endpoint>,
    /// What an operator should know at start.
    pub warnings: Vec<String>,
}

impl Serve {
    /// Checks the settings, and reads the files with secrets, keys and certificates.
    ///
    /// # Errors
    /// [`ConfigError`], naming the flag.
    pub fn settings(&self, clock: &Clock) -> Result<Settings, ConfigError> {
        self.check_bounds()?;
        let mut warnings = Vec::new();
        let keys = self.keys(&mut warnings, clock)?;
        let keyring = Arc::clone(&keys.keyring);
        let mode =
            self.auth.unwrap_or(if keyring.is_configured() { AuthMode::Required } else { AuthMode::Off });
        let policy = Policy {
            audience: self.jwt_audience.clone(),
            issuer: self.jwt_issuer.clone(),
            leeway_secs: self.jwt_leeway_secs,
            owner_from: self.owner_from,
        };
        let auth = Authenticator::new(mode, keyring, policy)?;
        let auth = if self.listen.ip().is_loopback() { auth.open_to_administration() } else { auth };
        let anonymous = mode != AuthMode::Required;
        if anonymous && !self.listen.ip().is_loopback() {
            if !self.allow_anonymous_network {
                return Err(ConfigError::AnonymousNetwork(self.listen));
            }
            warnings.push(format!("anonymous callers on the network at {} are let in", self.listen));
        }
        if self.store == StoreUrl::Memory {
            warnings.push("--store memory: keeps nothing: every task is lost when this process stops".into());
        }
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some(Arc::new(Tls::read(certificate, key)?)),
            _ => None,
        };
        Ok(Settings {
            auth,
            limits: self.limits(),
            http: self.http(),
            keys,
            tls,
            drain: Duration::from_secs(self.drain_secs),
            traces: self.otlp_endpoint.clone(),
            warnings,
        })
    }

    /// The keys that tokens may be signed with, and where those that change come from.
    fn keys(&self, warnings: &mut Vec<String>, clock: &Clock) -> Result<KeySources, ConfigError> {
        let mut fixed = Keys::none();
        if let Some(path) = &self.jwt_secret_file {
            let secret = SecretFile::read(path)?;
            if secret.is_short() {
                warnings.push(format!(
                    "the secret in {} is shorter than {SHORT_SECRET_BYTES} bytes, the least that RFC 7518 allows for \
                     HS256; it can be guessed",
                    path.display()
                ));
            }
            fixed.extend([Key::hs256(&secret)]);
        }
        for path in &self.jwt_public_key_file {
            fixed.extend(PublicKeyFile::read(path)?);
        }
        let file = self.jwks_file.as_ref().map(|_| Source::File);
        let server = self.jwks_url.as_ref().map(|_| Source::Server);
        let sources: Vec<_> = file.into_iter().chain(server).collect();
        let keyring = Arc::new(Keyring::new(fixed, &sources));
        let file = self.jwks_file.as_ref().map(|path| KeyFile::read(path, &keyring, clock)).transpose()?;
        let server = self.jwks_url.as_ref().map(|url| {
            Ok::<_, UrlError>(KeyServer {
                fetcher: Fetcher::new(url, self.jwks_ca_file.as_deref())?,
                refresh: Duration::from_secs(self.jwks_refresh_secs),
                cooldown: Duration::from_secs(self.jwks_cooldown_secs),
            })
        });
        Ok(KeySources { keyring, file, server: server.transpose()? })
    }

    fn check_bounds(&self) -> Result<(), ConfigError> {
        if self.default_ttl_ms > self.max_ttl_ms {
            return Err(ConfigError::DefaultTtl { default: self.default_ttl_ms, maximum: self.max_ttl_ms });
        }
        let rules = [
            (
                Limits::POLL_INTERVAL_MS.contains(&self.default_poll_interval_ms),
                "--default-poll-interval-ms",
                "must be from 100 to 3600000",
            ),
            (self.max_payload_bytes >= 1024, "--max-payload-bytes", "must be at least 1024"),
            (
                self.max_body_bytes >= self.max_payload_bytes,
                "--max-body-bytes",
                "must be at least --max-payload-bytes",
            ),
            (self.max_body_bytes <= 256 << 20, "--max-body-bytes", "must be at most 268435456"),
            (self.max_requests >= 1, "--max-requests", "must be at least 1"),
            (self.max_tasks >= 1, "--max-tasks", "must be at least 1"),
            (self.default_ttl_ms >= 1, "--default-ttl-ms", "must be at least 1"),
            (self.quota_tasks_per_owner >= 1, "--quota-tasks-per-owner", "must be at least 1"),
            (self.quota_bytes_per_owner >= 1, "--quota-bytes-per-owner", "must be at least 1"),
            (
                (1 << 20..=1 << 40).contains(&self.cache_bytes),
                "--cache-bytes",
                "must be from 1048576 to 1099511627776",
            ),
            (
                !(self.existing_store_only && self.store == StoreUrl::Memory),
                "--existing-store-only",
                "cannot be: --store memory: is always a new store",
            ),
            (self.drain_secs <= 3600, "--drain-secs", "must be at most 3600"),
            (
                self.jwks_ca_file.is_none() || self.jwks_url.is_some(),
                "--jwks-ca-file",
                "has no effect without --jwks-url",
            ),
            ((1..=3600).contains(&self.jwks_cooldown_secs), "--jwks-cooldown-secs", "must be from 1 to 3600"),
            (
                (self.jwks_cooldown_secs..=86_400).contains(&self.jwks_refresh_secs),
                "--jwks-refresh-secs",
                "must be from --jwks-cooldown-secs to 86400",
            ),
            (self.tls_cert.is_none() || self.tls_key.is_some(), "--tls-cert", "needs --tls-key"),
            (self.tls_key.is_none() || self.tls_cert.is_some(), "--tls-key", "needs --tls-cert"),
        ];
        let origins = self.allow_origin.iter().all(|origin| is_origin(origin));
        let rules = rules.into_iter().chain([(
            origins,
            "--allow-origin",
            "must be an origin as browsers send it: http or https, a host in lower case, a port if it is not the \
             usual one, and nothing behind it",
        )]);
        for (holds, flag, rule) in rules {
            if !holds {
                return Err(ConfigError::OutOfBounds { flag, rule });
            }
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits {
            default_ttl_ms: self.default_ttl_ms,
            max_ttl_ms: self.max_ttl_ms,
            default_poll_interval_ms: self.default_poll_interval_ms,
            max_payload_bytes: u64::from(self.max_payload_bytes),
            quota: Quota {
                tasks_per_owner: self.quota_tasks_per_owner,
                bytes_per_owner: self.quota_bytes_per_owner,
                max_tasks: self.max_tasks,
            },
        }
    }

    fn http(&self) -> HttpSettings {
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        HttpSettings {
            max_body_bytes: size(self.max_body_bytes),
            max_requests: size(self.max_requests),
            waits: SeatLimits { total: size(self.max_waits), per_subject: size(self.max_waits_per_subject) },
            streams: SeatLimits {
                total: size(self.max_streams),
                per_subject: size(self.max_streams_per_subject),
            },
            allow_origin: self.allow_origin.clone(),
            rate_per_subject: self.rate_limit_per_subject,
        }
    }
}

/// Whether a browser could send this as the origin of a page. "*" and "null" would let in every page there is.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._:[]".contains(&byte);
    host.is_some_and(|host| !host.is_empty() && host.bytes().all(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(flags: &[&str]) -> Serve {
        let flags = ["task-broker", "serve"].iter().chain(flags);
        match Cli::try_parse_from(flags).unwrap().command {
            Command::Serve(serve) => *serve,
            _ => unreachable!(),
        }
    }

    fn error(flags: &[&str]) -> String {
        serve(flags).settings(&Clock::system()).unwrap_err().to_string()
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn nothing_but_serve_is_a_complete_configuration() {
        let serve = serve(&[]);
        assert_eq!(serve.store, StoreUrl::Sled("./data".into()));
        let settings = serve.settings(&Clock::system()).unwrap();
        assert!(settings.warnings.is_empty());
        assert_eq!(settings.auth.mode(), AuthMode::Off);
    }

    #[test]
    fn an_error_names_the_flag() {
        for (flags, flag) in [
            (&["--default-ttl-ms", "10", "--max-ttl-ms", "5"][..], "--default-ttl-ms"),
            (&["--default-poll-interval-ms", "99"], "--default-poll-interval-ms"),
            (&["--max-body-bytes", "2048", "--max-payload-bytes", "4096"], "--max-body-bytes"),
            (&["--max-requests", "0"], "--max-requests"),
            (&["--default-ttl-ms", "0"], "--default-ttl-ms"),
            (&["--quota-tasks-per-owner", "0"], "--quota-tasks-per-owner"),
            (&["--cache-bytes", "99999999999999"], "--cache-bytes"),
            (&["--store", "memory:", "--existing-store-only"], "--existing-store-only"),
            (&["--listen", "0.0.0.0:0"], "--allow-anonymous-network"),
            (&["--allow-origin", "*"], "--allow-origin"),
            (&["--allow-origin", "https://a.example,null"], "--allow-origin"),
            (&["--allow-origin", "https://a.example/"], "--allow-origin"),
            (&["--allow-origin", "HTTPS://A.EXAMPLE"], "--allow-origin"),
            (&["--allow-origin", ""], "--allow-origin"),
            (&["--auth", "required"], "--jwt-secret-file"),
            (&["--jwt-secret-file", "/nonexistent/secret"], "--jwt-secret-file"),
            (&["--jwt-public-key-file", "/nonexistent/key"], "--jwt-public-key-file"),
            (&["--jwks-file", "/nonexistent/keys"], "--jwks-file"),
            (&["--jwks-url", "http://issuer.example/"], "--jwks-url"),
            (
                &["--jwks-url", "https://issuer.example/", "--jwks-ca-file", "/nonexistent/ca"],
                "--jwks-ca-file",
            ),
            (&["--jwks-url", "http://127.0.0.1/"], "--jwt-audience"),
            (&["--jwks-url", "http://127.0.0.1/", "--auth", "off"], "--jwks-url"),
            (&["--jwks-ca-file", "/nonexistent/ca"], "--jwks-ca-file"),
            (&["--jwks-cooldown-secs", "0"], "--jwks-cooldown-secs"),
            (&["--jwks-refresh-secs", "5"], "--jwks-refresh-secs"),
            (&["--tls-cert", "/nonexistent/cert"], "--tls-key"),
            (&["--tls-key", "/nonexistent/key"], "--tls-cert"),
            (&["--tls-cert", "/nonexistent/cert", "--tls-key", "/nonexistent/key"], "--tls-cert"),
        ] {
            let error = error(flags);
            assert!(error.contains(flag), "{error}");
        }
    }

    #[test]
    fn origins_of_pages_are_taken_as_browsers_send_them() {
        for origin in ["https://a.example", "http://localhost:8080", "http://[::1]:3000"] {
            assert!(serve(&["--allow-origin", origin]).settings(&Clock::system()).is_ok(), "{origin}");
        }
    }

    #[test]
    fn an_open_door_must_be_meant() {
        let settings = serve(&["--listen", "0.0.0.0:0", "--allow-anonymous-network"])
            .settings(&Clock::system())
            .unwrap();
        assert_eq!(settings.warnings.len(), 1);
        assert!(serve(&["--listen", "[::1]:0"]).settings(&Clock::system()).is_ok());
    }

    #[test]
    fn stores_are_named_by_their_kind() {
        assert_eq!("memory:".parse(), Ok(StoreUrl::Memory));
        assert_eq!("sled:/var/lib/x".parse(), Ok(StoreUrl::Sled("/var/lib/x".into())));
        for text in
            ["", "sled", "sled:", "memory", "memory:x", "file:/x", "postgres://x", "sled:~/data", "sled: x"]
        {
            assert!(text.parse::<StoreUrl>().is_err(), "{text}");
        }
    }
}
