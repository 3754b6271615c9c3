//! The token out of the `Authorization` header (RFC 6750 2.1).

use super::Unauthorized;

/// The longest token that is looked at, in bytes. Tokens of real issuers have 1 to 4 KiB; without a bound of its
/// own anyone could have the broker decode as much as the HTTP layer lets through.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// The one bearer token, or `None` if there is no `Authorization` header at all.
pub(super) fn token<'h>(
    authorization: impl IntoIterator<Item = &'h [u8]>,
) -> Result<Option<&'h str>, Unauthorized> {
    let mut values = authorization.into_iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        // Which of them a proxy in front has checked is unknown, so neither is believed.
        return Err(Unauthorized::SEVERAL_HEADERS);
    }
    let mut words = value.splitn(2, |byte| *byte == b' ');
    if !words.next().is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"Bearer")) {
        return Err(Unauthorized::NOT_BEARER);
    }
    let mut token = words.next().unwrap_or_default();
    // RFC 9110 11.4 allows more than one space after the scheme.
    while let [b' ', rest @ ..] = token {
        token = rest;
    }
    if token.is_empty() {
        return Err(Unauthorized::NOT_ONE_TOKEN);
    }
    if token.len() > MAX_TOKEN_BYTES {
        return Err(Unauthorized::TOO_LONG);
    }
    if memchr::memchr(b' ', token).is_some() {
        return Err(Unauthorized::NOT_ONE_TOKEN);
    }
    match str::from_utf8(token) {
        Ok(token) if token.is_ascii() => Ok(Some(token)),
        _ => Err(Unauthorized::NOT_A_JWT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &[u8]) -> Result<Option<&str>, Unauthorized> {
        token([value])
    }

    #[test]
    fn the_scheme_is_case_insensitive() {
        for value in ["Bearer a.b.c", "bearer a.b.c", "BEARER a.b.c", "bEaReR   a.b.c"] {
            assert_eq!(read(value.as_bytes()), Ok(Some("a.b.c")), "{value:?}");
        }
    }

    #[test]
    fn anything_but_one_header_with_one_token_is_refused() {
        assert_eq!(token([]), Ok(None));
        assert_eq!(token([&b"Bearer a"[..], b"Bearer a"]), Err(Unauthorized::SEVERAL_HEADERS));
        assert_eq!(token([&b""[..], b""]), Err(Unauthorized::SEVERAL_HEADERS));
        for value in ["", " ", "Basic abc", "Basic", "Bearer\ta", "Bearera", "a.b.c", " Bearer a", "Bearer,a"]
        {
            assert_eq!(read(value.as_bytes()), Err(Unauthorized::NOT_BEARER), "{value:?}");
        }
        for value in ["Bearer", "Bearer ", "Bearer   ", "Bearer a b", "Bearer a ", "Bearer a, Bearer b"] {
            assert_eq!(read(value.as_bytes()), Err(Unauthorized::NOT_ONE_TOKEN), "{value:?}");
        }
        for value in [&b"Bearer \xff\xfe"[..], "Bearer é.b.c".as_bytes(), b"Bearer a.b.\x80"] {
            assert_eq!(read(value), Err(Unauthorized::NOT_A_JWT), "{value:?}");
        }
    }

    #[test]
    fn a_token_may_have_16_kib_and_no_more() {
        let longest = format!("Bearer {}", "a".repeat(MAX_TOKEN_BYTES));
        assert_eq!(read(longest.as_bytes()), Ok(longest.get(7..)));
        for extra in [1, 1024 * 1024] {
            let value = format!("{longest}{}", "a".repeat(extra));
            assert_eq!(read(value.as_bytes()), Err(Unauthorized::TOO_LONG));
        }
    }
}
