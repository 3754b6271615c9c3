//! From flags to settings: what they mean together, and the files that they name.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use task_broker_core::{Limits, Quota};

use super::{ConfigError, Serve, StoreUrl};
use crate::auth::{
    AuthMode, Authenticator, Key, Keyring, Keys, Policy, PublicKeyFile, SHORT_SECRET_BYTES, SecretFile,
    Source,
};
use crate::broker::SeatLimits;
use crate::clock::Clock;
use crate::http::{HttpSettings, Tls};
use crate::keysource::{Fetcher, KeyFile, KeyServer, KeySources, UrlError};
use crate::traces::Endpoint;

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
            (self.rate_limit_per_subject != Some(0), "--rate-limit-per-subject", "must be at least 1"),
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
            (
                !self.no_compaction || self.compact_above_bytes == Self::COMPACT_ABOVE_BYTES,
                "--no-compaction",
                "cannot be together with --compact-above-bytes",
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
            rate_per_subject: self.rate_limit_per_subject.and_then(NonZeroU32::new),
        }
    }
}

/// Whether a browser could send this as the origin of a page. "*" and "null" would let in every page there is.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._:[]".contains(&byte);
    host.is_some_and(|host| !host.is_empty() && host.bytes().all(fits))
}
