//! Tokens for the broker under measurement, signed with keys that are made for the run.

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::clock;

/// The audience of the tokens.
const AUDIENCE: &str = "bench";

/// The subject of tokens where it does not matter.
const SUBJECT: &str = "bench-client";

/// How long a token is good, in seconds. Longer than any run.
const VALID_SECS: u64 = 24 * 60 * 60;

/// The smallest RSA key that a broker takes, and the one that most issuers have.
const RSA_BITS: KeySize = KeySize::Rsa2048;

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Hs256,
    Rs256,
}

impl Algorithm {
    const fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
        }
    }
}

/// The keys of a run, and the files that a broker reads them from.
#[derive(Debug)]
pub(crate) struct Keys {
    directory: TempDir,
    secret: [u8; 32],
    pair: KeyPair,
}

impl Keys {
    /// Makes them.
    pub(crate) fn new(directory: TempDir) -> Result<Self> {
        let mut secret = [0; 32];
        aws_lc_rs::rand::fill(&mut secret).ok().context("no random numbers")?;
        let pair = KeyPair::generate(RSA_BITS).ok().context("no RSA key was made")?;
        let keys = Self { directory, secret, pair };
        // As text: a broker takes what is in the file as it is.
        std::fs::write(keys.secret_file(), keys.secret_text())?;
        let der = keys.pair.public_key().as_der().ok().context("a public key without DER")?;
        let pem = format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            STANDARD.encode(der.as_ref())
        );
        std::fs::write(keys.public_key_file(), pem)?;
        Ok(keys)
    }

    fn secret_file(&self) -> std::path::PathBuf {
        self.directory.path().join("secret")
    }

    fn public_key_file(&self) -> std::path::PathBuf {
        self.directory.path().join("public.pem")
    }

    fn secret_text(&self) -> String {
        STANDARD.encode(self.secret)
    }

    /// What a broker must be told to take these tokens, and anonymous callers beside them.
    pub(crate) fn broker_args(&self) -> Result<Vec<String>> {
        let path = |path: std::path::PathBuf| {
            path.to_str().map(str::to_owned).context("--dir must be readable as text")
        };
        Ok([
            "--auth",
            "optional",
            "--jwt-audience",
            AUDIENCE,
            "--jwt-secret-file",
            &path(self.secret_file())?,
            "--jwt-public-key-file",
            &path(self.public_key_file())?,
        ]
        .map(str::to_owned)
        .to_vec())
    }

    /// Different tokens of one subject.
    pub(crate) fn tokens(&self, algorithm: Algorithm, count: u32) -> Result<Vec<String>> {
        (0..count).map(|number| self.token(algorithm, SUBJECT, number)).collect()
    }

    /// A token of this subject.
    pub(crate) fn token_of(&self, subject: &str, algorithm: Algorithm) -> Result<String> {
        self.token(algorithm, subject, 0)
    }

    fn token(&self, algorithm: Algorithm, subject: &str, number: u32) -> Result<String> {
        let expires = clock::unix()?.as_secs() + VALID_SECS;
        let header = format!(r#"{{"alg":"{}","typ":"JWT"}}"#, algorithm.name());
        let claims = format!(r#"{{"sub":"{subject}","aud":"{AUDIENCE}","exp":{expires},"jti":"{number}"}}"#);
        self.sign(algorithm, &header, &claims)
    }

    fn sign(&self, algorithm: Algorithm, header: &str, claims: &str) -> Result<String> {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = match algorithm {
            Algorithm::Hs256 => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, self.secret_text().as_bytes());
                hmac::sign(&key, message.as_bytes()).as_ref().to_vec()
            }
            Algorithm::Rs256 => {
                let mut signature = vec![0; self.pair.public_modulus_len()];
                let signed = self.pair.sign(
                    &RSA_PKCS1_SHA256,
                    &SystemRandom::new(),
                    message.as_bytes(),
                    &mut signature,
                );
                signed.ok().context("the RSA key does not sign")?;
                signature
            }
        };
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_different_and_say_how_they_are_signed() {
        let keys = Keys::new(tempfile::tempdir().unwrap()).unwrap();
        for algorithm in [Algorithm::Hs256, Algorithm::Rs256] {
            let tokens = keys.tokens(algorithm, 2).unwrap();
            assert_ne!(tokens[0], tokens[1]);
            let header = URL_SAFE_NO_PAD.decode(tokens[0].split('.').next().unwrap()).unwrap();
            assert!(String::from_utf8(header).unwrap().contains(algorithm.name()));
        }
    }
}
