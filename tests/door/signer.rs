//! Private keys of every kind, and tokens from raw text.

use std::sync::OnceLock;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    self as sig, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    Ed25519KeyPair, KeyPair as _, RsaEncoding, RsaPublicKeyComponents,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::harness::token::unsigned;

/// All algorithms with a public key.
pub(crate) const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];

/// A private key.
pub(crate) enum Signer {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    /// A new key for this algorithm.
    pub(crate) fn new(algorithm: &str) -> Self {
        match algorithm {
            "ES256" => Self::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()),
            "ES384" => Self::P384(EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap()),
            "EdDSA" => Self::Ed25519(Ed25519KeyPair::generate().unwrap()),
            _ => Self::Rsa(Box::new(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())),
        }
    }

    /// One key for this algorithm, the same for all tests of the process: RSA keys take long to make.
    pub(crate) fn shared(algorithm: &str) -> &'static Self {
        static RSA: OnceLock<Signer> = OnceLock::new();
        static P256: OnceLock<Signer> = OnceLock::new();
        static P384: OnceLock<Signer> = OnceLock::new();
        static ED25519: OnceLock<Signer> = OnceLock::new();
        let lock = match algorithm {
            "ES256" => &P256,
            "ES384" => &P384,
            "EdDSA" => &ED25519,
            _ => &RSA,
        };
        lock.get_or_init(|| Self::new(algorithm))
    }

    /// The public key as `SubjectPublicKeyInfo`.
    pub(crate) fn der(&self) -> Vec<u8> {
        let der = match self {
            Self::Rsa(pair) => pair.public_key().as_der(),
            Self::P256(pair) | Self::P384(pair) => pair.public_key().as_der(),
            Self::Ed25519(pair) => pair.public_key().as_der(),
        };
        der.unwrap().as_ref().to_vec()
    }

    /// The public key as text.
    pub(crate) fn pem(&self) -> String {
        pem("PUBLIC KEY", &self.der())
    }

    /// The public key for a key set, without `alg` and `kid`.
    pub(crate) fn jwk(&self) -> Value {
        let point = |pair: &EcdsaKeyPair, crv: &str| {
            let (x, y) = pair.public_key().as_ref()[1..].split_at(pair.public_key().as_ref().len() / 2);
            json!({"kty": "EC", "crv": crv, "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)})
        };
        match self {
            Self::Rsa(pair) => {
                let parts = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode(parts.n), "e": URL_SAFE_NO_PAD.encode(parts.e)})
            }
            Self::P256(pair) => point(pair, "P-256"),
            Self::P384(pair) => point(pair, "P-384"),
            Self::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(pair.public_key().as_ref())})
            }
        }
    }

    /// The public key for a key set, with a name.
    pub(crate) fn named_jwk(&self, kid: &str) -> Value {
        let mut jwk = self.jwk();
        jwk["kid"] = json!(kid);
        jwk
    }

    /// The signature of a message by this algorithm.
    pub(crate) fn signature(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let encoding: &'static dyn RsaEncoding = match algorithm {
                    "RS256" => &sig::RSA_PKCS1_SHA256,
                    "RS384" => &sig::RSA_PKCS1_SHA384,
                    "RS512" => &sig::RSA_PKCS1_SHA512,
                    "PS256" => &sig::RSA_PSS_SHA256,
                    "PS384" => &sig::RSA_PSS_SHA384,
                    "PS512" => &sig::RSA_PSS_SHA512,
                    other => panic!("no RSA key signs {other}"),
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &random, message, &mut signature).unwrap();
                signature
            }
            Self::P256(pair) | Self::P384(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// Header and payload as they are, signed by this algorithm, whatever the header says.
    pub(crate) fn seal(&self, algorithm: &str, header: &str, payload: &str) -> String {
        let message = unsigned(header, payload);
        let signature = self.signature(algorithm, message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// A token that says its algorithm and names no key.
    pub(crate) fn token(&self, algorithm: &str, payload: &str) -> String {
        self.seal(algorithm, &json!({"alg": algorithm}).to_string(), payload)
    }

    /// A token that says its algorithm and its key.
    pub(crate) fn named_token(&self, algorithm: &str, kid: &str, payload: &str) -> String {
        self.seal(algorithm, &json!({"alg": algorithm, "kid": kid}).to_string(), payload)
    }
}

/// A PEM text.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let lines: Vec<_> = STANDARD.encode(der).into_bytes().chunks(64).map(<[u8]>::to_vec).collect();
    let lines: Vec<_> = lines.into_iter().map(|line| String::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
