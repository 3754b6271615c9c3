//! What makes the subject of a token.

use task_broker_core::OwnerFrom;

use super::*;

fn broker_of_issuers() -> Authenticator {
    broker_with(AuthMode::Required, Policy { owner_from: OwnerFrom::IssSub, ..policy(0) })
}

fn subject(iss: &str, sub: &str) -> Result<Caller, Unauthorized> {
    let (iss, sub) = (serde_json::to_string(iss).unwrap(), serde_json::to_string(sub).unwrap());
    ask_with(&broker_of_issuers(), &[("iss", Some(&iss)), ("sub", Some(&sub))])
}

#[test]
fn with_iss_sub_the_subject_is_the_issuer_a_space_and_the_sub() {
    assert_eq!(subject("https://a.example", "alice"), Ok(Caller::named("https://a.example alice")));
    assert_eq!(subject("a", " b"), Ok(Caller::named("a  b")));
}

#[test]
fn two_pairs_are_never_one_subject() {
    let pairs =
        [("a", "b c"), ("a", " b c"), ("a", "b  c"), ("ab", "c"), ("a", "bc"), ("a:b", "c"), ("a", "b:c")];
    let subjects: std::collections::BTreeSet<_> =
        pairs.iter().map(|(iss, sub)| subject(iss, sub).unwrap().subject).collect();
    assert_eq!(subjects.len(), pairs.len());
    for iss in ["a b", " a", "a ", "", " ", "a\u{a0}b", "a\tb", "a\nb", "a\u{2003}b", "a\u{0}b"] {
        assert_eq!(subject(iss, "c"), Err(Unauthorized::NO_ISS), "{iss:?}");
    }
    assert_eq!(ask_with(&broker_of_issuers(), &[]), Err(Unauthorized::NO_ISS), "no iss at all");
}

#[test]
fn a_pair_has_the_bound_of_a_subject() {
    assert!(subject("i", &"s".repeat(510)).is_ok());
    assert_eq!(subject("i", &"s".repeat(511)), Err(Unauthorized::LONG_ISS_SUB));
}
