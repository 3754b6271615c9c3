//! Payloads that are told apart by their content and can be made again to check what came back.

/// The end of every payload.
const END: &str = r#""}"#;

/// A JSON object of exactly `bytes` bytes, always the same for the same `seed`: `{"seed":7,"text":"..."}` with
/// pseudo-random hexadecimal digits, so that no compression and no sharing makes it cheaper than a real payload.
/// `bytes` below about 40 gives the shortest such object.
pub(crate) fn object(bytes: usize, seed: u64) -> String {
    let mut text = format!(r#"{{"seed":{seed},"text":""#);
    let mut state = seed;
    while text.len() + END.len() < bytes {
        let digits = format!("{:016x}", next(&mut state));
        let room = bytes - END.len() - text.len();
        text.extend(digits.chars().take(room));
    }
    text.push_str(END);
    text
}

/// SplitMix64: a few instructions, and good enough to be incompressible.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_the_size_asked_for_and_is_json() {
        for bytes in [40, 1024, 1025, 65_536] {
            let payload = object(bytes, 12_345);
            assert_eq!(payload.len(), bytes);
            serde_json::from_str::<serde_json::Value>(&payload).unwrap();
        }
    }

    #[test]
    fn a_payload_depends_on_its_seed_alone() {
        assert_eq!(object(1024, 1), object(1024, 1));
        assert_ne!(object(1024, 1), object(1024, 2));
    }
}
