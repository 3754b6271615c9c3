//! What is looked at before a request's body is read: where it comes from, what it says it is, who sends it.

use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, ORIGIN, TRANSFER_ENCODING};
use axum::http::{HeaderMap, HeaderValue, Version};

/// Whether a request says once for whom it is, as RFC 9112 (3.2) demands: of two hosts a proxy might have looked at the other
/// one.
pub(super) fn names_one_host(version: Version, headers: &HeaderMap) -> bool {
    match headers.get_all(HOST).iter().count() {
        0 => version != Version::HTTP_11,
        count => count == 1,
    }
}

/// Whether a page of this origin may call. Without the header it is no page; any other origin must be on the
/// list, or any web page could drive a broker on its visitor's machine.
pub(super) fn origin_allowed(headers: &HeaderMap, allowed: &[String]) -> bool {
    headers
        .get_all(ORIGIN)
        .iter()
        .all(|origin| origin.to_str().is_ok_and(|origin| allowed.iter().any(|known| known == origin)))
}

/// Whether the body is JSON in UTF-8, uncompressed. Types that a page can send to another site without asking
/// (text and forms) are refused by that.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(kind), None) = (types.next(), types.next()) else { return false };
    let identity = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"identity");
    let plain = headers.get_all(CONTENT_ENCODING).iter().all(identity);
    // Chunks are put together below; whatever else it is coded in for its way would be left as it is.
    let chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    let plain = plain && headers.get_all(TRANSFER_ENCODING).iter().all(chunked);
    plain && kind.to_str().is_ok_and(is_json_type)
}

fn is_json_type(kind: &str) -> bool {
    // As nearly everybody writes it.
    if kind == "application/json" {
        return true;
    }
    let mut quoted = false;
    let mut parts = kind.split(|letter| {
        quoted ^= letter == '"';
        letter == ';' && !quoted
    });
    let json = parts.next().is_some_and(|name| name.trim().eq_ignore_ascii_case("application/json"));
    json && parts.all(|parameter| {
        let Some((name, value)) = parameter.split_once('=') else { return parameter.trim().is_empty() };
        let value = value.trim().trim_matches('"');
        !name.trim().eq_ignore_ascii_case("charset") || value.eq_ignore_ascii_case("utf-8")
    })
}

/// Whether the client takes a stream of events.
pub(super) fn accepts_event_stream(headers: &HeaderMap) -> bool {
    let names = |value: &HeaderValue| {
        value.to_str().is_ok_and(|value| {
            value.split(',').any(|range| {
                let mut parts = range.split(';').map(str::trim);
                let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("text/event-stream"));
                named && !parts.any(is_unwanted)
            })
        })
    };
    headers.get_all(axum::http::header::ACCEPT).iter().any(names)
}

/// A weight of zero says "not this one" (RFC 9110, 12.4.2).
fn is_unwanted(parameter: &str) -> bool {
    let weight = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="));
    weight.and_then(|weight| weight.trim().parse::<f32>().ok()).is_some_and(|weight| weight <= 0.0)
}

/// The values of the header that says who sends it.
pub(super) fn authorization(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers.get_all(AUTHORIZATION).iter().map(HeaderValue::as_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (axum::http::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn json_is_json_however_it_is_spelled() {
        for kind in [
            "application/json",
            "application/json; charset=utf-8",
            "application/json;charset=UTF-8",
            "Application/JSON",
            "application/json; charset=\"utf-8\"",
            "application/json; x=y",
            "application/json; x=\"a;b\"",
            "application/json; x=\"a; charset=utf-16\"; charset=utf-8",
            "application/json;",
        ] {
            assert!(is_json(&headers(&[("content-type", kind)])), "{kind}");
        }
    }

    #[test]
    fn what_is_not_json_or_not_plain_is_refused() {
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/json; charset=utf-16",
            "application/json; x=\"a;b\"; charset=utf-16",
            "",
        ] {
            assert!(!is_json(&headers(&[("content-type", kind)])), "{kind}");
        }
        assert!(!is_json(&headers(&[])));
        let json = ("content-type", "application/json");
        for coding in ["gzip", "br", "zstd", "deflate", "x-unknown", "identity, gzip"] {
            assert!(!is_json(&headers(&[json, ("content-encoding", coding)])), "{coding}");
        }
        for coding in ["gzip, chunked", "gzip", "chunked, chunked"] {
            assert!(!is_json(&headers(&[json, ("transfer-encoding", coding)])), "{coding}");
        }
        assert!(is_json(&headers(&[json, ("transfer-encoding", "Chunked")])));
        for coding in ["identity", "IDENTITY"] {
            assert!(is_json(&headers(&[json, ("content-encoding", coding)])), "{coding}");
        }
    }

    #[test]
    fn a_host_is_named_once() {
        let none = headers(&[]);
        let one = headers(&[("host", "broker")]);
        let mut two = one.clone();
        two.append(HOST, HeaderValue::from_static("broker"));
        for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
            assert_eq!(names_one_host(version, &none), version != Version::HTTP_11, "{version:?}");
            assert!(names_one_host(version, &one), "{version:?}");
            assert!(!names_one_host(version, &two), "{version:?}");
        }
    }

    #[test]
    fn two_content_types_are_refused() {
        let mut headers = headers(&[("content-type", "application/json")]);
        headers.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        assert!(!is_json(&headers));
    }

    #[test]
    fn only_listed_origins_may_call() {
        let allowed = ["https://app.example".to_owned()];
        assert!(origin_allowed(&headers(&[]), &allowed));
        assert!(origin_allowed(&headers(&[("origin", "https://app.example")]), &allowed));
        for origin in ["https://evil.example", "null", "https://app.example.evil", "http://app.example"] {
            assert!(!origin_allowed(&headers(&[("origin", origin)]), &allowed), "{origin}");
        }
        assert!(!origin_allowed(&headers(&[("origin", "http://127.0.0.1:8420")]), &[]));
    }

    #[test]
    fn a_stream_must_be_asked_for() {
        for accept in ["text/event-stream", "application/json, text/event-stream;q=0.9", "Text/Event-Stream"]
        {
            assert!(accepts_event_stream(&headers(&[("accept", accept)])), "{accept}");
        }
        for accept in
            ["application/json", "*/*", "text/*", "text/event-stream;q=0", "text/event-stream; q=0.0"]
        {
            assert!(!accepts_event_stream(&headers(&[("accept", accept)])), "{accept}");
        }
    }
}
