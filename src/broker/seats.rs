//! Places for calls that stay open: so many in total, so many for one subject.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use task_broker_core::Subject;
use tokio::sync::watch;

/// How many calls of one sort may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatLimits {
    /// In total.
    pub total: usize,
    /// For one subject; anonymous callers are one subject.
    pub per_subject: usize,
}

#[derive(Debug)]
pub(super) struct Seats {
    limits: SeatLimits,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    /// How many in all; watched by whoever waits for the last one to leave.
    total: watch::Sender<usize>,
    by_subject: HashMap<Subject, usize>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoSeat {
    /// All places are taken.
    Full,
    /// This subject has taken all of its own.
    SubjectFull,
}

impl Seats {
    pub(super) fn new(limits: SeatLimits) -> Self {
        Self { limits, taken: Arc::default() }
    }

    /// Takes a place, if there is one.
    pub(super) fn take(&self, subject: &Subject) -> Result<Seat, NoSeat> {
        let mut taken = self.taken.lock();
        if *taken.total.borrow() >= self.limits.total {
            return Err(NoSeat::Full);
        }
        let own = taken.by_subject.entry(subject.clone()).or_default();
        if *own >= self.limits.per_subject {
            return Err(NoSeat::SubjectFull);
        }
        *own += 1;
        taken.total.send_modify(|total| *total += 1);
        Ok(Seat { taken: Arc::clone(&self.taken), subject: subject.clone() })
    }

    /// How many places are taken.
    pub(super) fn taken(&self) -> usize {
        *self.taken.lock().total.borrow()
    }

    /// Waits until nobody is seated.
    pub(super) async fn empty(&self) {
        let mut total = self.taken.lock().total.subscribe();
        // The sender lives as long as this does.
        drop(total.wait_for(|total| *total == 0).await);
    }
}

/// A place; given back when dropped.
#[derive(Debug)]
pub struct Seat {
    taken: Arc<Mutex<Taken>>,
    subject: Subject,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        taken.total.send_modify(|total| *total -= 1);
        if let Some(own) = taken.by_subject.get_mut(&self.subject) {
            *own -= 1;
            if *own == 0 {
                taken.by_subject.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_subject_cannot_take_the_places_of_the_others() {
        let seats = Seats::new(SeatLimits { total: 3, per_subject: 2 });
        let (alice, bob) = (Some(Arc::from("alice")), Some(Arc::from("bob")));
        let held = (seats.take(&alice).unwrap(), seats.take(&alice).unwrap());
        assert_eq!(seats.take(&alice).unwrap_err(), NoSeat::SubjectFull);
        let other = seats.take(&bob).unwrap();
        assert_eq!(seats.take(&None).unwrap_err(), NoSeat::Full);
        drop((held, other));
        assert!(seats.taken.lock().by_subject.is_empty(), "nothing is kept for subjects that are gone");
        assert!(seats.take(&alice).is_ok());
    }
}
