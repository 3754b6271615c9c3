//! What a token must claim, in exactly which form (cases C01, C09, C11, C12).

use std::collections::HashSet;

use super::*;

#[test]
fn a_date_of_a_wrong_type_is_never_taken_for_an_absent_one() {
    let wrong = [r#""99999999999""#, r#""1""#, "null", "true", "[]", "{}", "-1", "1e400", r#""""#];
    for (claim, refusal) in
        [("exp", Unauthorized::BAD_EXP), ("nbf", Unauthorized::BAD_NBF), ("iat", Unauthorized::BAD_IAT)]
    {
        for value in wrong {
            let got = ask_with(&broker(), &[(claim, Some(value))]);
            assert_eq!(got, Err(refusal), "{claim}: {value}");
        }
    }
    assert_eq!(ask_with(&broker(), &[("exp", None)]), Err(Unauthorized::BAD_EXP));
    assert_eq!(ask_with(&broker(), &[("nbf", Some("99999999999"))]), Err(Unauthorized::NOT_YET));
    for value in ["0", "1799999999", "1800000000", "1.8e9", "1799999999.999"] {
        assert!(ask_with(&broker(), &[("nbf", Some(value)), ("iat", Some(value))]).is_ok(), "{value}");
    }
}

#[test]
fn the_leeway_is_the_one_that_is_set_for_exp_and_nbf_alike() {
    for leeway in [0, 30] {
        let broker = broker_with(AuthMode::Required, policy(leeway));
        // Seconds that exp lies in the past, and nbf in the future.
        for distance in [0, 1, 5, 29, 30, 31, 59, 60, 61, 90] {
            let exp = (NOW - distance).to_string();
            let expected =
                if distance < leeway { Ok(Caller::named("alice")) } else { Err(Unauthorized::EXPIRED) };
            assert_eq!(
                ask_with(&broker, &[("exp", Some(&exp))]),
                expected,
                "exp -{distance}, leeway {leeway}"
            );

            let nbf = (NOW + distance).to_string();
            let expected =
                if distance <= leeway { Ok(Caller::named("alice")) } else { Err(Unauthorized::NOT_YET) };
            assert_eq!(
                ask_with(&broker, &[("nbf", Some(&nbf))]),
                expected,
                "nbf +{distance}, leeway {leeway}"
            );
        }
    }
}

#[test]
fn the_bounds_hold_to_the_millisecond() {
    let cases = [
        ("exp", "1800000000.001", None),
        ("exp", "1800000000.0", Some(Unauthorized::EXPIRED)),
        ("exp", "1799999999.999", Some(Unauthorized::EXPIRED)),
        ("nbf", "1800000000.0", None),
        ("nbf", "1800000000.001", Some(Unauthorized::NOT_YET)),
    ];
    for (claim, value, refusal) in cases {
        let got = ask_with(&broker(), &[(claim, Some(value))]);
        assert_eq!(got.err(), refusal, "{claim} {value}");
    }
}

#[test]
fn a_token_for_another_audience_is_refused() {
    for good in [
        r#""task-broker""#,
        r#""tasks""#,
        r#"["task-broker"]"#,
        r#"["other", "tasks"]"#,
        r#"["tasks","tasks"]"#,
        r#""task\u002dbroker""#,
    ] {
        assert!(ask_with(&broker(), &[("aud", Some(good))]).is_ok(), "{good}");
    }
    for other in [
        r#""other-service""#,
        r#""task-broker-evil""#,
        r#""Task-Broker""#,
        r#""task-broker/""#,
        r#"" task-broker""#,
        r#""task-broker tasks""#,
        r#""""#,
        "[]",
        r#"["other"]"#,
    ] {
        assert_eq!(
            ask_with(&broker(), &[("aud", Some(other))]),
            Err(Unauthorized::OTHER_AUDIENCE),
            "{other}"
        );
    }
    for wrong in
        ["null", "1", "true", "{}", r#"{"task-broker":1}"#, r#"["task-broker",1]"#, r#"[["task-broker"]]"#]
    {
        assert_eq!(ask_with(&broker(), &[("aud", Some(wrong))]), Err(Unauthorized::BAD_AUD), "{wrong}");
    }
    assert_eq!(ask_with(&broker(), &[("aud", None)]), Err(Unauthorized::BAD_AUD));
}

#[test]
fn a_token_of_another_issuer_is_refused_if_one_is_set() {
    let issuer = Some("https://issuer.example/a".to_owned());
    let strict = broker_with(AuthMode::Required, Policy { issuer, ..policy(0) });
    assert!(ask_with(&strict, &[("iss", Some(r#""https://issuer.example/a""#))]).is_ok());
    for other in [
        None,
        Some(r#""""#),
        Some(r#""https://issuer.example/a/""#),
        Some(r#""https://issuer.example/b""#),
        Some(r#""https://ISSUER.example/a""#),
    ] {
        assert_eq!(ask_with(&strict, &[("iss", other)]), Err(Unauthorized::OTHER_ISSUER), "{other:?}");
        assert!(ask_with(&broker(), &[("iss", other)]).is_ok(), "{other:?} when none is set");
    }
    for wrong in ["null", "1", r#"["https://issuer.example/a"]"#] {
        for broker in [&strict, &broker()] {
            assert_eq!(ask_with(broker, &[("iss", Some(wrong))]), Err(Unauthorized::BAD_ISS), "{wrong}");
        }
    }
}

#[test]
fn subjects_that_are_missing_blank_too_long_or_no_string_are_refused() {
    let long = format!(r#""{}""#, "a".repeat(513));
    // 257 characters, 514 bytes: the bound counts bytes.
    let wide = format!(r#""{}""#, "é".repeat(257));
    let huge = format!(r#""{}""#, "a".repeat(4096));
    for sub in [
        r#""""#,
        r#"" ""#,
        r#""\t\n\r ""#,
        r#""\u00a0\u2003\u3000""#,
        "null",
        "5",
        "true",
        "[]",
        r#"["alice"]"#,
        r#"{"name":"alice"}"#,
        r#""\ud800""#,
        r#""alice\udc00""#,
        &long,
        &wide,
        &huge,
    ] {
        assert_eq!(ask_with(&broker(), &[("sub", Some(sub))]), Err(Unauthorized::BAD_SUB), "{sub}");
    }
    assert_eq!(ask_with(&broker(), &[("sub", None)]), Err(Unauthorized::BAD_SUB));
    let endless = format!(r#""{}""#, "a".repeat(1024 * 1024));
    assert_eq!(ask_with(&broker(), &[("sub", Some(&endless))]), Err(Unauthorized::TOO_LONG));
}

#[test]
fn subjects_that_look_alike_are_different_callers() {
    let longest = "a".repeat(512);
    let subjects = [
        "owner-a",
        "owner-a ",
        " owner-a",
        "OWNER-A",
        "owner-a\n",
        "owner-a\0",
        "owner-a\u{200b}",
        "owner-\u{0430}",
        "\0",
        "\u{200b}",
        "\u{feff}",
        "o\u{0301}",
        "\u{00f3}",
        "../owner-b",
        "owner/a",
        "owner:a",
        "*",
        "%",
        "null",
        "\u{1f980}",
        &longest,
    ];
    let mut seen = HashSet::new();
    for subject in subjects {
        let raw = serde_json::to_string(subject).expect("a string");
        let caller = ask_with(&broker(), &[("sub", Some(&raw))]).expect("a good subject");
        assert_eq!(caller.subject.as_deref(), Some(subject), "byte by byte");
        assert!(seen.insert(caller.subject), "{subject:?}");
    }
    let escaped = ask_with(&broker(), &[("sub", Some(r#""\ud83e\udd80""#))]).expect("a pair of surrogates");
    assert_eq!(
        escaped.subject.as_deref(),
        Some("\u{1f980}"),
        "an escape is another spelling, not another name"
    );
}

#[test]
fn the_scope_to_delegate_is_found_in_scope_and_scp() {
    for (claim, value, delegates) in [
        ("scope", r#""tasks:delegate""#, true),
        ("scope", r#""openid tasks:delegate email""#, true),
        ("scope", r#""openid  tasks:delegate""#, true),
        ("scope", r#""""#, false),
        ("scope", r#""tasks:delegated tasks:delegate/ TASKS:DELEGATE tasks""#, false),
        ("scope", r#""tasks:delegate,openid""#, false),
        ("scope", r#""openid\ttasks:delegate""#, false),
        ("scp", r#"["tasks:delegate"]"#, true),
        ("scp", r#"["openid","tasks:delegate"]"#, true),
        ("scp", r#""openid tasks:delegate""#, true),
        ("scp", "[]", false),
        ("scp", r#"["openid"]"#, false),
        ("scp", r#"["openid tasks:delegate"]"#, false),
        ("scopes", r#"["tasks:delegate"]"#, false),
    ] {
        let caller = ask_with(&broker(), &[(claim, Some(value))]).expect("a good scope");
        assert_eq!(caller.may_delegate, delegates, "{claim}: {value}");
    }
    let both = [("scope", Some(r#""openid""#)), ("scp", Some(r#"["tasks:delegate"]"#))];
    assert!(ask_with(&broker(), &both).expect("good scopes").may_delegate);
    for (claim, value) in [
        ("scope", "null"),
        ("scope", r#"["tasks:delegate"]"#),
        ("scope", "1"),
        ("scp", "null"),
        ("scp", r#"["tasks:delegate",1]"#),
        ("scp", "{}"),
    ] {
        let got = ask_with(&broker(), &[(claim, Some(value))]);
        assert_eq!(got, Err(Unauthorized::BAD_SCOPE), "{claim}: {value}");
    }
}

#[test]
fn claims_are_one_object_without_repetition() {
    let good = claims(&[]);
    let open = good.strip_suffix('}').expect("an object");
    for (name, value) in [
        ("sub", r#""bob""#),
        ("exp", "99999999999"),
        ("aud", r#""task-broker""#),
        ("\\u0073ub", r#""alice""#),
    ] {
        let repeated = format!(r#"{open},"{name}":{value}}}"#);
        assert_eq!(ask(&broker(), &token(HEADER, repeated)), Err(Unauthorized::BAD_CLAIMS), "{name}");
    }
    for name in ["nbf", "iat", "iss", "scope", "scp"] {
        let repeated = format!(r#"{open},"{name}":1,"{name}":1}}"#);
        assert_eq!(ask(&broker(), &token(HEADER, repeated)), Err(Unauthorized::BAD_CLAIMS), "{name}");
    }
    for payload in ["", "[]", "null", r#""alice""#, &format!("[{good}]"), &format!("{good}x"), open] {
        assert_eq!(ask(&broker(), &token(HEADER, payload)), Err(Unauthorized::BAD_CLAIMS), "{payload}");
    }
    let not_utf8 = [open.as_bytes(), b",\"name\":\"\xff\"}"].concat();
    assert_eq!(ask(&broker(), &token(HEADER, not_utf8)), Err(Unauthorized::BAD_CLAIMS));
}

#[test]
fn claims_that_are_not_read_may_be_anything() {
    let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
    for value in ["null", "1e999", r#""\ud800""#, r#"{"sub":"bob","sub":"eve"}"#, &deep] {
        let payload = claims(&[("other", Some(value)), ("SUB", Some(value))]);
        assert_eq!(ask(&broker(), &token(HEADER, payload)), Ok(Caller::named("alice")), "{value}");
    }
    let open = claims(&[]).replace('}', r#","other":1,"other":2}"#);
    assert!(ask(&broker(), &token(HEADER, open)).is_ok());
}

#[test]
fn claims_are_not_looked_at_before_the_signature_is_good() {
    let (header, payload) = (base64url(HEADER.as_bytes()), base64url(b"no JSON at all"));
    let forged = seal_with(&header, &payload, "another secret", Algorithm::HS256);
    assert_eq!(ask(&broker(), &forged), Err(Unauthorized::BAD_SIGNATURE));
    assert_eq!(ask(&broker(), &seal(&header, &payload)), Err(Unauthorized::BAD_CLAIMS));
}
