//! What stands under the key of a task: its small payloads and its head, in one piece.
//!
//! ```text
//! number of payloads (4), a reference for each (22), their bytes in the same order, the head
//! ```
//!
//! One value for a task instead of one for each payload: there is one to write and one to remove instead of three (what that
//! is worth stands in docs/measurements.md), and whoever reads all heads at a start has read, and proved, the small payloads
//! too.

use bytes::BufMut as _;
use task_broker_core::{PayloadRef, Task};

use super::cursor::{Cursor, REFERENCE_BYTES, put_reference};
use super::keys::is_small;
use super::seal::Broken;

/// A bundle, taken apart.
#[derive(Clone, Debug)]
pub(super) struct Bundle<'a> {
    references: Cursor<'a>,
    payloads: Cursor<'a>,
    /// The encoded head.
    pub(super) head: &'a [u8],
}

/// The bytes of a bundle.
pub(super) fn encode(head: &[u8], payloads: &[(PayloadRef, impl AsRef<[u8]>)]) -> Vec<u8> {
    let bytes: usize = payloads.iter().map(|(_, bytes)| REFERENCE_BYTES + bytes.as_ref().len()).sum();
    let mut bundle = Vec::with_capacity(4 + bytes + head.len());
    bundle.put_u32_le(u32::try_from(payloads.len()).unwrap_or(u32::MAX));
    for (reference, _) in payloads {
        put_reference(&mut bundle, reference);
    }
    for (_, bytes) in payloads {
        bundle.put_slice(bytes.as_ref());
    }
    bundle.put_slice(head);
    bundle
}

impl<'a> Bundle<'a> {
    /// The parts of these bytes, if [`encode`] could have made them.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, Broken> {
        let parts = || {
            let mut rest = Cursor(bytes);
            let references = rest.u32()?.checked_mul(u32::try_from(REFERENCE_BYTES).ok()?)?;
            let references = Cursor(rest.take(references)?);
            let mut unread = references.clone();
            let mut length = 0_u32;
            while !unread.0.is_empty() {
                length = length.checked_add(unread.reference()?.len)?;
            }
            let payloads = Cursor(rest.take(length)?);
            Some(Self { references, payloads, head: rest.0 })
        };
        parts().ok_or(Broken::Content)
    }

    /// Its payloads.
    pub(super) fn payloads(&self) -> impl Iterator<Item = (PayloadRef, &'a [u8])> + use<'a> {
        let Self { mut references, mut payloads, .. } = self.clone();
        std::iter::from_fn(move || {
            let reference = references.reference()?;
            Some((reference, payloads.take(reference.len)?))
        })
    }

    /// The bytes of one payload, if it is here. They are not proved.
    pub(super) fn get(&self, wanted: &PayloadRef) -> Option<&'a [u8]> {
        self.payloads().find(|(reference, _)| reference == wanted).map(|(_, bytes)| bytes)
    }

    /// Whether it holds the small payloads of this task, byte for byte, and no others.
    pub(super) fn is_complete_for(&self, task: &Task) -> bool {
        let mut small = 0;
        let all = task.payloads().filter(|payload| is_small(payload)).all(|payload| {
            small += 1;
            self.get(payload).is_some_and(|bytes| payload.matches(bytes))
        });
        all && self.payloads().count() == small
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use task_broker_core::Payload;

    use super::*;

    fn payload(revision: u64, text: &'static str) -> (PayloadRef, Bytes) {
        let payload = Payload::new(Bytes::from_static(text.as_bytes()));
        (payload.reference(revision, 0), payload.bytes().clone())
    }

    #[test]
    fn a_bundle_gives_back_what_was_put_in_and_nothing_else() {
        let payloads = [payload(1, "first"), payload(2, ""), payload(3, "the third one")];
        for count in 0..=payloads.len() {
            let bytes = encode(b"head", &payloads[..count]);
            let bundle = Bundle::decode(&bytes).unwrap();
            assert_eq!(bundle.head, b"head");
            for (index, (reference, text)) in payloads.iter().enumerate() {
                let found = bundle.get(reference);
                assert_eq!(found, (index < count).then_some(&**text), "{index} of {count}");
            }
            assert_eq!(bundle.payloads().count(), count);
        }
    }

    #[test]
    fn what_is_cut_or_claims_too_much_is_no_bundle() {
        let payloads = [payload(1, "first"), payload(2, "second")];
        let bytes = encode(b"", &payloads);
        for length in 0..bytes.len() {
            assert!(Bundle::decode(&bytes[..length]).is_err(), "cut at {length}");
        }
        for count in [3_u32, 1 << 28, u32::MAX] {
            let mut changed = bytes.clone();
            changed[..4].copy_from_slice(&count.to_le_bytes());
            assert!(Bundle::decode(&changed).is_err(), "{count} payloads");
        }
        // A length that is not there.
        let mut changed = bytes;
        changed[4 + 16..4 + 20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Bundle::decode(&changed).is_err());
    }
}
