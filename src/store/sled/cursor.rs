//! References to payloads as bytes, and reading such bytes from the front.

use bytes::BufMut;
use task_broker_core::PayloadRef;

/// How many bytes a reference takes: revision, checksum, length, place; little-endian.
pub(super) const REFERENCE_BYTES: usize = 22;

/// Writes a reference.
pub(super) fn put_reference(bytes: &mut impl BufMut, reference: &PayloadRef) {
    bytes.put_u64_le(reference.revision);
    bytes.put_u64_le(reference.checksum);
    bytes.put_u32_le(reference.len);
    bytes.put_u16_le(reference.place());
}

/// Reads on from the front; nothing where there is not enough.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, count: u32) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn reference(&mut self) -> Option<PayloadRef> {
        let (revision, checksum) = (self.u64()?, self.u64()?);
        let len = self.u32()?;
        // The last place cannot be told from the one before it (see `PayloadRef`), so it was never written.
        let place = Some(u16::from_le_bytes(self.array()?)).filter(|place| *place < u16::MAX)?;
        Some(PayloadRef::new(revision, place, len, checksum))
    }
}
