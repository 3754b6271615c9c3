//! A frame: one group of after-images, and the proof that nothing before it is missing.
//!
//! ```text
//! header   magic, generation, sequence, checksum of the frame before, clock,
//!          number and digest of all heads after this frame, length and checksum of the body, checksum of the header
//! body     image, image, ...
//! image    time of creation, id, there or gone, head, payloads (reference, bytes), dropped payloads (reference)
//! ```
//!
//! Numbers are little-endian. docs/storage.md has the layout byte by byte.

use bytes::{BufMut, Bytes, BytesMut};
use task_broker_core::{PayloadRef, TaskId, Timestamp};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::super::census::Census;
use super::super::cursor::{Cursor, REFERENCE_BYTES, put_reference};
use super::super::overlay::Pending;
use crate::store::ListPlace;

const MAGIC: &[u8; 8] = b"taskbrk1";

/// The length of a header in bytes; it fits into one sector, so that it is there whole or not at all.
pub(super) const HEADER_BYTES: usize = 88;

/// No frame is longer: what a length claims is not believed beyond. A group has at most 4 MiB and one command more,
/// and a command at most 256 MiB.
pub(super) const MAX_BODY_BYTES: u32 = 1 << 30;

/// Everything about a frame but its images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Header {
    pub(in super::super) generation: u64,
    pub(in super::super) sequence: u64,
    /// The checksum of the header before this one: frames form a chain.
    pub(in super::super) previous: u64,
    /// The time of the commit.
    pub(in super::super) clock: Timestamp,
    /// What the store holds after this frame.
    pub(in super::super) census: Census,
    pub(in super::super) body_bytes: u32,
    pub(in super::super) body_checksum: u64,
}

impl Header {
    /// The checksum that proves a body; bound to its place, so that no two frames are taken for each other.
    pub(super) fn checksum_of(body: &[u8], sequence: u64) -> u64 {
        xxh3_64_with_seed(body, sequence)
    }

    /// The bytes, and the checksum that the next frame names. It is seeded with the journal's key, which only the disk
    /// knows: no payload that a client chooses can look like a frame.
    pub(super) fn encode(&self, key: u64) -> ([u8; HEADER_BYTES], u64) {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.put_slice(MAGIC);
        bytes.put_u64_le(self.generation);
        bytes.put_u64_le(self.sequence);
        bytes.put_u64_le(self.previous);
        bytes.put_u64_le(self.clock.as_millis());
        bytes.put_u64_le(self.census.count);
        bytes.put_u128_le(self.census.digest);
        bytes.put_u64_le(u64::from(self.body_bytes));
        bytes.put_u64_le(self.body_checksum);
        let checksum = xxh3_64_with_seed(&bytes, key);
        bytes.put_u64_le(checksum);
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&bytes);
        (header, checksum)
    }

    /// The header at the beginning of `bytes` and its checksum, if there is a good one.
    pub(super) fn decode(bytes: &[u8], key: u64) -> Option<(Self, u64)> {
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let mut rest = Cursor(header);
        if rest.array::<8>()? != *MAGIC {
            return None;
        }
        let decoded = Self {
            generation: rest.u64()?,
            sequence: rest.u64()?,
            previous: rest.u64()?,
            clock: Timestamp::from_millis(rest.u64()?),
            census: Census { count: rest.u64()?, digest: u128::from_le_bytes(rest.array()?) },
            body_bytes: u32::try_from(rest.u64()?).ok().filter(|bytes| *bytes <= MAX_BODY_BYTES)?,
            body_checksum: rest.u64()?,
        };
        let (_, checksum) = decoded.encode(key);
        (rest.u64()? == checksum).then_some((decoded, checksum))
    }
}

/// One task as a group leaves it, on its way to the disk.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Image<'a> {
    pub(in super::super) place: ListPlace,
    /// The encoded head; nothing when the task is gone.
    pub(in super::super) head: Option<&'a [u8]>,
    /// Payloads that are new and still wanted.
    pub(in super::super) payloads: &'a [(PayloadRef, Bytes)],
    /// Payloads of earlier groups that nobody wants once this is durable.
    pub(in super::super) dropped: &'a [PayloadRef],
}

/// place, presence, three lengths
const IMAGE_BYTES: usize = 8 + 16 + 1 + 12;

/// The body of a frame. Nothing if it would be longer than a frame may be.
pub(in super::super) fn encode_body<'a>(images: impl Iterator<Item = Image<'a>> + Clone) -> Option<Bytes> {
    let length: usize = images
        .clone()
        .map(|image| {
            let payloads =
                image.payloads.iter().map(|(_, bytes)| REFERENCE_BYTES + bytes.len()).sum::<usize>();
            let head = image.head.map_or(0, <[u8]>::len);
            IMAGE_BYTES + head + payloads + image.dropped.len() * REFERENCE_BYTES
        })
        .sum();
    u32::try_from(length).ok().filter(|length| *length <= MAX_BODY_BYTES)?;
    let mut body = BytesMut::with_capacity(length);
    for image in images {
        body.put_u64_le(image.place.created_at.as_millis());
        body.put_slice(image.place.id.as_bytes());
        body.put_u8(u8::from(image.head.is_some()));
        let head = image.head.unwrap_or_default();
        body.put_u32_le(u32::try_from(head.len()).ok()?);
        body.put_u32_le(u32::try_from(image.payloads.len()).ok()?);
        body.put_u32_le(u32::try_from(image.dropped.len()).ok()?);
        body.put_slice(head);
        for (reference, bytes) in image.payloads {
            put_reference(&mut body, reference);
            body.put_slice(bytes);
        }
        for reference in image.dropped {
            put_reference(&mut body, reference);
        }
    }
    Some(body.freeze())
}

/// The images of a body, as parts of it: nothing is copied. Nothing if it is none that [`encode_body`] made.
pub(in super::super) fn decode_body(body: &Bytes) -> Option<Vec<(ListPlace, Pending)>> {
    let mut images = Vec::new();
    let mut rest = Cursor(body);
    while !rest.0.is_empty() {
        let created_at = Timestamp::from_millis(rest.u64()?);
        let place = ListPlace { created_at, id: TaskId::from_bytes(rest.array()?) };
        let [there] = rest.array()?;
        let (head, payloads, dropped) = (rest.u32()?, rest.u32()?, rest.u32()?);
        let head = rest.take(head)?;
        let mut pending = Pending {
            head: match (there, head) {
                (1, head) => Some(body.slice_ref(head)),
                (0, []) => None,
                _ => return None,
            },
            ..Pending::default()
        };
        for _ in 0..payloads {
            let reference = rest.reference()?;
            let bytes = rest.take(reference.len)?;
            pending.payloads.push((reference, body.slice_ref(bytes)));
        }
        for _ in 0..dropped {
            pending.dropped.push(rest.reference()?);
        }
        images.push((place, pending));
    }
    Some(images)
}
