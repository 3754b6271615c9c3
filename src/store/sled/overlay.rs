//! What is durable in the journal and not in sled yet.
//!
//! Two layers: one that grows, and one that is being carried into sled. Images move from the one to the other and then
//! into sled, and readers look in this order, so none is missed on its way.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use task_broker_core::{PayloadRef, Task};

use crate::store::ListPlace;

/// The newest state of one task, as far as it is not in sled.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    /// Its encoded head; nothing when it is gone.
    pub(super) head: Option<Bytes>,
    /// Its payloads that are not in sled: parts of a frame, which stays in memory as long as one of them does. Some may have been dropped since; a reader may still have a head that names them.
    pub(super) payloads: Vec<(PayloadRef, Bytes)>,
    /// Payloads that nobody wants any more: some of these, and some that are in sled.
    pub(super) dropped: Vec<PayloadRef>,
}

impl Pending {
    /// Takes in what happened next. What was dropped before that is forgotten: by now readers have newer heads.
    fn follow(&mut self, next: Self) {
        if !self.dropped.is_empty() {
            let mut dropped: HashSet<_> = self.dropped.drain(..).collect();
            self.payloads.retain(|(reference, _)| !dropped.remove(reference));
            self.dropped.extend(dropped);
        }
        self.head = next.head;
        self.payloads.extend(next.payloads);
        self.dropped.extend(next.dropped);
    }

    /// Whether everything about the task is here, nothing in sled: it was created in this layer.
    pub(super) fn is_whole(&self) -> bool {
        self.payloads.iter().any(|(reference, _)| reference.revision == Task::FIRST_REVISION)
    }

    /// The bytes of a payload, if it is here.
    pub(super) fn payload(&self, wanted: &PayloadRef) -> Option<&Bytes> {
        // What is read is new, mostly.
        self.payloads.iter().rev().find(|(reference, _)| reference == wanted).map(|(_, bytes)| bytes)
    }

    /// What sled has to be given, and what it has to be rid of. A payload that came and went is in neither.
    pub(super) fn settle(&self) -> (Vec<&(PayloadRef, Bytes)>, Vec<&PayloadRef>) {
        if self.dropped.is_empty() {
            return (self.payloads.iter().collect(), Vec::new());
        }
        let mut dropped: HashSet<_> = self.dropped.iter().collect();
        let wanted = self.payloads.iter().filter(|(reference, _)| !dropped.remove(reference)).collect();
        (wanted, dropped.into_iter().collect())
    }
}

/// Tasks with their newest states, in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct Layer(BTreeMap<ListPlace, Pending>);

impl Layer {
    /// Takes in the images of a frame.
    pub(super) fn follow(&mut self, images: Vec<(ListPlace, Pending)>) {
        for (place, next) in images {
            self.0.entry(place).or_default().follow(next);
        }
    }

    /// The newest state of a task, if it is here.
    pub(super) fn get(&self, place: ListPlace) -> Option<&Pending> {
        self.0.get(&place)
    }

    /// All of it, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ListPlace, &Pending)> {
        self.0.iter().map(|(place, pending)| (*place, pending))
    }

    fn payload(&self, place: ListPlace, wanted: &PayloadRef) -> Option<Bytes> {
        self.0.get(&place)?.payload(wanted).cloned()
    }
}

/// Shared by the writer, which adds, the follower, which carries away, and all readers.
#[derive(Debug, Default)]
pub(super) struct Overlay(RwLock<Layers>);

#[derive(Debug, Default)]
struct Layers {
    growing: Layer,
    carried: Arc<Layer>,
}

impl Overlay {
    /// The bytes of a payload that is not in sled yet.
    pub(super) fn payload(&self, place: ListPlace, wanted: &PayloadRef) -> Option<Bytes> {
        let layers = self.0.read();
        layers.growing.payload(place, wanted).or_else(|| layers.carried.payload(place, wanted))
    }

    /// Adds the images of a frame. It must be durable. Returns how many tasks have grown together since the last
    /// hand-over.
    pub(super) fn add(&self, images: Vec<(ListPlace, Pending)>) -> usize {
        let mut layers = self.0.write();
        layers.growing.follow(images);
        layers.growing.0.len()
    }

    /// Hands what has grown over to be carried into sled. What was carried before must be there.
    pub(super) fn hand_over(&self) -> Arc<Layer> {
        let mut layers = self.0.write();
        layers.carried = Arc::new(std::mem::take(&mut layers.growing));
        Arc::clone(&layers.carried)
    }

    /// Forgets what was carried. It must be in sled, where readers find it from now on.
    pub(super) fn forget(&self) {
        let carried = std::mem::take(&mut self.0.write().carried);
        // Outside the lock: this may be a large layer.
        drop(carried);
    }
}

#[cfg(test)]
mod tests {
    use task_broker_core::{Payload, TaskId, Timestamp};

    use super::*;

    const PLACE: ListPlace =
        ListPlace { created_at: Timestamp::from_millis(5), id: TaskId::from_bytes([1; 16]) };

    fn new(revision: u64, text: &'static str) -> (PayloadRef, Bytes) {
        let payload = Payload::new(Bytes::from_static(text.as_bytes()));
        (payload.reference(revision, 0), payload.bytes().clone())
    }

    fn image(
        payloads: &[&(PayloadRef, Bytes)],
        dropped: &[&(PayloadRef, Bytes)],
    ) -> Vec<(ListPlace, Pending)> {
        let pending = Pending {
            head: Some(Bytes::from_static(b"head")),
            payloads: payloads.iter().map(|payload| (*payload).clone()).collect(),
            dropped: dropped.iter().map(|(reference, _)| *reference).collect(),
        };
        vec![(PLACE, pending)]
    }

    #[test]
    fn a_payload_is_found_on_its_way_until_it_is_in_sled() {
        let overlay = Overlay::default();
        let (first, second) = (new(1, "first"), new(2, "second"));
        overlay.add(image(&[&first], &[]));
        let carried = overlay.hand_over();
        overlay.add(image(&[&second], &[&first]));
        for (reference, bytes) in [&first, &second] {
            assert_eq!(overlay.payload(PLACE, reference).as_ref(), Some(bytes));
        }
        assert!(carried.get(PLACE).is_some());
        overlay.forget();
        assert_eq!(overlay.payload(PLACE, &first.0), None);
        let carried = overlay.hand_over();
        let pending = carried.get(PLACE).unwrap();
        assert_eq!(pending.settle(), (vec![&second], vec![&first.0]), "the first was carried, so it must go");
    }

    #[test]
    fn a_payload_that_came_and_went_is_not_for_sled_but_for_readers_with_an_older_head() {
        let overlay = Overlay::default();
        let (first, second) = (new(1, "first"), new(2, "second"));
        overlay.add(image(&[&first], &[]));
        overlay.add(image(&[&second], &[&first]));
        assert_eq!(overlay.payload(PLACE, &first.0).as_ref(), Some(&first.1));
        overlay.add(vec![(PLACE, Pending { dropped: vec![second.0], ..Pending::default() })]);
        let layer = overlay.hand_over();
        let gone = layer.get(PLACE).unwrap();
        assert!(gone.head.is_none());
        assert_eq!(gone.settle(), (vec![], vec![]));
    }
}
