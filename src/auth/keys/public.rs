//! Public keys: parsed and checked when they are loaded, so that a key that is too weak or is not what it says is
//! told to the operator, and a request pays for nothing but the signature.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    VerificationAlgorithm,
};
use jsonwebtoken::Algorithm;

/// The sizes of RSA keys that are taken, in bits: below, a key can be broken (RFC 7518 3.3); above, one check takes
/// longer than a request should.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The algorithms of RSA keys.
const RSA: [(Algorithm, &RsaParameters); 6] = [
    (Algorithm::RS256, &RSA_PKCS1_2048_8192_SHA256),
    (Algorithm::RS384, &RSA_PKCS1_2048_8192_SHA384),
    (Algorithm::RS512, &RSA_PKCS1_2048_8192_SHA512),
    (Algorithm::PS256, &RSA_PSS_2048_8192_SHA256),
    (Algorithm::PS384, &RSA_PSS_2048_8192_SHA384),
    (Algorithm::PS512, &RSA_PSS_2048_8192_SHA512),
];

/// Why a public key is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// Not a key of a kind that is known.
    #[error("it is no RSA, P-256, P-384 or Ed25519 public key")]
    Unknown,
    /// It can be broken, or is unreasonably large.
    #[error("an RSA key must have 2048 to 8192 bits")]
    RsaSize,
    /// Signatures could be made without the private key.
    #[error("the exponent of an RSA key must be odd, at least 3 and of at most 33 bits")]
    RsaExponent,
    /// It is not on its curve, or is cut.
    #[error("its numbers are no public key of its kind")]
    Malformed,
}

/// A public key with one algorithm.
pub(super) struct Verifier {
    algorithm: Algorithm,
    key: ParsedPublicKey,
}

impl Verifier {
    fn new(
        algorithm: Algorithm,
        check: &'static dyn VerificationAlgorithm,
        bytes: &[u8],
    ) -> Result<Self, KeyFault> {
        let Ok(key) = ParsedPublicKey::new(check, bytes) else { return Err(KeyFault::Malformed) };
        Ok(Self { algorithm, key })
    }

    pub(super) const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether this is the signature of the message. Its length is a matter of the algorithm.
    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        self.key.verify_sig(message, signature).is_ok()
    }
}

/// The key of a DER text: `SubjectPublicKeyInfo`, or of RSA also PKCS #1. What kind it is, it says itself.
pub(super) fn from_der(der: &[u8]) -> Result<Vec<Verifier>, KeyFault> {
    if let Ok(rsa) = aws_lc_rs::rsa::PublicKey::from_der(der) {
        let RsaPublicKeyComponents { n, e } = RsaPublicKeyComponents::<Vec<u8>>::from(&rsa);
        return from_rsa(&n, &e, None);
    }
    // A point of a curve could also stand alone, and says nothing about its kind then.
    if !der.starts_with(&[0x30]) {
        return Err(KeyFault::Unknown);
    }
    for (algorithm, check) in [
        (Algorithm::ES256, &ECDSA_P256_SHA256_FIXED as &'static dyn VerificationAlgorithm),
        (Algorithm::ES384, &ECDSA_P384_SHA384_FIXED),
        (Algorithm::EdDSA, &ED25519),
    ] {
        if let Ok(verifier) = Verifier::new(algorithm, check, der) {
            return Ok(vec![verifier]);
        }
    }
    Err(KeyFault::Unknown)
}

/// Whether the algorithm is one of RSA keys.
pub(super) fn is_rsa(algorithm: Algorithm) -> bool {
    RSA.iter().any(|(one, _)| *one == algorithm)
}

/// An RSA key from its modulus and exponent, for one algorithm or for all that RSA keys have.
pub(super) fn from_rsa(n: &[u8], e: &[u8], only: Option<Algorithm>) -> Result<Vec<Verifier>, KeyFault> {
    let (n, e) = (without_zeros(n), without_zeros(e));
    let bits = n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
    if !RSA_BITS.contains(&bits) {
        return Err(KeyFault::RsaSize);
    }
    if !is_sound_exponent(e) {
        return Err(KeyFault::RsaExponent);
    }
    let wanted = RSA.iter().filter(|(algorithm, _)| only.is_none_or(|only| only == *algorithm));
    let verifiers = wanted.map(|(algorithm, parameters)| {
        let parsed = RsaPublicKeyComponents { n, e }.to_parsed_public_key(parameters);
        let Ok(key) = parsed else { return Err(KeyFault::Malformed) };
        Ok(Verifier { algorithm: *algorithm, key })
    });
    let verifiers: Vec<_> = verifiers.collect::<Result<_, _>>()?;
    if verifiers.is_empty() { Err(KeyFault::Unknown) } else { Ok(verifiers) }
}

/// A key on P-256 from its coordinates.
pub(super) fn from_p256(x: &[u8], y: &[u8]) -> Result<Vec<Verifier>, KeyFault> {
    let point = point::<32>(x, y)?;
    Ok(vec![Verifier::new(Algorithm::ES256, &ECDSA_P256_SHA256_FIXED, &point)?])
}

/// A key on P-384 from its coordinates.
pub(super) fn from_p384(x: &[u8], y: &[u8]) -> Result<Vec<Verifier>, KeyFault> {
    let point = point::<48>(x, y)?;
    Ok(vec![Verifier::new(Algorithm::ES384, &ECDSA_P384_SHA384_FIXED, &point)?])
}

/// An Ed25519 key from its 32 bytes.
pub(super) fn from_ed25519(x: &[u8]) -> Result<Vec<Verifier>, KeyFault> {
    let Ok(bytes) = <[u8; 32]>::try_from(x) else { return Err(KeyFault::Malformed) };
    Ok(vec![Verifier::new(Algorithm::EdDSA, &ED25519, &bytes)?])
}

/// The uncompressed point of two coordinates, which must have their full length (RFC 7518 6.2.1.2).
fn point<const N: usize>(x: &[u8], y: &[u8]) -> Result<Vec<u8>, KeyFault> {
    if x.len() != N || y.len() != N {
        return Err(KeyFault::Malformed);
    }
    Ok([&[4], x, y].concat())
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

/// With 1 as exponent every message would be its own signature; an even one is none at all.
fn is_sound_exponent(e: &[u8]) -> bool {
    let value = e.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    e.len() <= 5 && value % 2 == 1 && (3..1 << 33).contains(&value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_that_prove_nothing_are_refused() {
        for (e, sound) in [
            (&[1, 0, 1][..], true),
            (&[3], true),
            (&[1], false),
            (&[], false),
            (&[2], false),
            (&[1, 0, 0], false),
            (&[1, 255, 255, 255, 255], true),
            (&[2, 0, 0, 0, 1], false),
            (&[1, 0, 0, 0, 0, 0, 0, 0, 1], false),
        ] {
            assert_eq!(is_sound_exponent(e), sound, "{e:?}");
        }
    }

    #[test]
    fn a_key_that_is_too_small_or_too_large_is_refused() {
        let modulus = |bits: usize| {
            let mut n = vec![0xff; bits.div_ceil(8)];
            n[0] = 0xff >> (n.len() * 8 - bits);
            n
        };
        for bits in [0, 1, 512, 1024, 2047, 8193, 16_384] {
            let fault = from_rsa(&modulus(bits.max(1)), &[1, 0, 1], None).err();
            assert_eq!(fault, Some(KeyFault::RsaSize), "{bits}");
        }
        let mut padded = vec![0; 100];
        padded.extend(modulus(1024));
        assert_eq!(from_rsa(&padded, &[1, 0, 1], None).err(), Some(KeyFault::RsaSize), "zeros are no bits");
        assert_eq!(from_rsa(&modulus(2048), &[1, 0, 1], None).unwrap().len(), 6);
        assert_eq!(from_rsa(&modulus(2048), &[1, 0, 1], Some(Algorithm::PS256)).unwrap().len(), 1);
        assert_eq!(from_rsa(&modulus(2048), &[1], None).err(), Some(KeyFault::RsaExponent));
    }

    #[test]
    fn a_point_off_its_curve_is_no_key() {
        assert_eq!(from_p256(&[1; 32], &[1; 32]).err(), Some(KeyFault::Malformed));
        assert_eq!(from_p384(&[1; 48], &[1; 48]).err(), Some(KeyFault::Malformed));
        assert_eq!(from_p256(&[1; 31], &[1; 32]).err(), Some(KeyFault::Malformed));
        assert_eq!(from_p256(&[0; 32], &[0; 32]).err(), Some(KeyFault::Malformed));
        assert_eq!(from_ed25519(&[1; 31]).err(), Some(KeyFault::Malformed));
        for der in [&[][..], &[0x30], &[0x30, 0], &[4; 65], b"garbage"] {
            assert_eq!(from_der(der).err(), Some(KeyFault::Unknown), "{der:?}");
        }
    }
}
