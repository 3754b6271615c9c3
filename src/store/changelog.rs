//! The newest events, by creator, for streams that resume.
//!
//! It is memory only. That is enough because a stream may always say "reset": its clients then read again what
//! they hold. What it must never do is drop an event in silence.

use std::collections::{HashMap, VecDeque};

use task_broker_core::{Event, Subject, TaskId, Timestamp};

/// How many events are kept for one creator. A stream that is further behind is reset.
const PER_CREATOR: usize = 4096;

/// How many events are kept for all creators; the creators that were silent for longest lose theirs first.
const TOTAL: usize = 262_144;

/// One event of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where the stream is after this event. Opaque outside the store.
    pub position: String,
    /// The task.
    pub id: TaskId,
    /// What happened.
    pub event: Event,
}

/// Events of one creator.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The events, oldest first.
    pub events: Vec<Change>,
    /// Events between the position asked for and these may be missing; there are none in `events` then.
    pub reset: bool,
    /// Where to go on from.
    pub position: String,
    /// Whether there are more events already.
    pub more: bool,
    /// The store's time.
    pub now: Timestamp,
}

/// The log itself. Whoever holds it guards it with a lock and appends only what is durable.
#[derive(Debug)]
pub(super) struct ChangeLog {
    /// Names this process's log, so that a position of an earlier process is recognised as unknown.
    boot: String,
    /// The number of the newest event.
    last: u64,
    /// The number of the newest event that was dropped together with its creator's tail.
    forgotten: u64,
    total: usize,
    creators: HashMap<Subject, Tail>,
}

/// The newest events of one creator.
#[derive(Debug, Default)]
struct Tail {
    events: VecDeque<(u64, TaskId, Event)>,
    /// The number of the newest event that was dropped.
    dropped: u64,
}

impl ChangeLog {
    /// An empty log. `boot` must differ from that of every earlier process.
    pub(super) fn new(boot: String) -> Self {
        Self { boot, last: 0, forgotten: 0, total: 0, creators: HashMap::new() }
    }

    /// Appends an event.
    pub(super) fn push(&mut self, creator: &Subject, id: TaskId, event: Event) {
        self.last += 1;
        if !self.creators.contains_key(creator) {
            // This creator may have had a tail that was forgotten; nothing before that point is certain.
            let tail = Tail { events: VecDeque::new(), dropped: self.forgotten };
            self.creators.insert(creator.clone(), tail);
        }
        let Some(tail) = self.creators.get_mut(creator) else { return };
        tail.events.push_back((self.last, id, event));
        self.total += 1;
        if tail.events.len() > PER_CREATOR
            && let Some((number, ..)) = tail.events.pop_front()
        {
            tail.dropped = number;
            self.total -= 1;
        }
        if self.total > TOTAL {
            self.forget_silent_creators();
        }
    }

    /// Forgets the creators whose newest events are oldest, until a quarter of the room is free: so the work is
    /// spread over many events.
    fn forget_silent_creators(&mut self) {
        let newest = |tail: &Tail| tail.events.back().map_or(0, |(number, ..)| *number);
        let mut by_silence: Vec<_> =
            self.creators.iter().map(|(creator, tail)| (newest(tail), creator.clone())).collect();
        by_silence.sort_unstable();
        for (number, creator) in by_silence {
            if self.total <= TOTAL / 4 * 3 {
                break;
            }
            if let Some(tail) = self.creators.remove(&creator) {
                self.total -= tail.events.len();
                self.forgotten = self.forgotten.max(number);
            }
        }
    }

    /// The position behind the event of this number.
    fn position(&self, number: u64) -> String {
        format!("{}-{number}", self.boot)
    }

    /// The number of a position of this process's log.
    fn number(&self, position: &str) -> Option<u64> {
        let number = position.strip_prefix(self.boot.as_str())?.strip_prefix('-')?;
        number.parse().ok().filter(|number| *number <= self.last)
    }

    /// See [`super::Store::changes`].
    pub(super) fn read(&self, creator: &Subject, since: Option<&str>, max: usize, now: Timestamp) -> Changes {
        let tail = self.creators.get(creator);
        let floor = tail.map_or(self.forgotten, |tail| tail.dropped);
        let since = since.and_then(|since| self.number(since)).filter(|since| *since >= floor);
        let end = |reset| Changes {
            events: Vec::new(),
            reset,
            position: self.position(self.last),
            more: false,
            now,
        };
        let Some(since) = since else { return end(true) };
        let Some(tail) = tail else { return end(false) };
        let start = tail.events.partition_point(|(number, ..)| *number <= since);
        let events: Vec<_> = tail
            .events
            .range(start..)
            .take(max)
            .map(|(number, id, event)| Change { position: self.position(*number), id: *id, event: *event })
            .collect();
        let more = tail.events.len() - start > events.len();
        let position = match events.last() {
            Some(last) if more => last.position.clone(),
            // Everything of this creator was seen: the stream stands at the end of the whole log, which keeps its
            // position fresh while other creators write.
            Some(_) | None => self.position(self.last),
        };
        Changes { events, reset: false, position, more, now }
    }
}

#[cfg(test)]
mod tests {
    use task_broker_core::{EventKind, Status};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn event(revision: u64) -> Event {
        Event {
            kind: EventKind::SetStatus,
            status: Status::Working,
            revision,
            cancel_requested: false,
            expires_at: NOW,
        }
    }

    fn subject(name: &str) -> Subject {
        task_broker_core::Caller::named(name).subject
    }

    fn id(n: u8) -> TaskId {
        TaskId::from_bytes([n; 16])
    }

    #[test]
    fn a_stream_sees_every_event_of_its_creator_once_and_in_order() {
        let mut log = ChangeLog::new("boot".into());
        let start = log.read(&subject("a"), None, 10, NOW);
        assert!(start.reset, "a stream without a position has to read what it holds");
        for revision in 1..=5 {
            log.push(&subject("a"), id(1), event(revision));
            log.push(&subject("b"), id(2), event(revision));
        }
        let mut position = start.position;
        let mut seen = Vec::new();
        loop {
            let changes = log.read(&subject("a"), Some(&position), 2, NOW);
            assert!(!changes.reset);
            seen.extend(changes.events.iter().map(|change| (change.id, change.event.revision)));
            position = changes.position;
            if !changes.more {
                break;
            }
        }
        assert_eq!(seen, (1..=5).map(|revision| (id(1), revision)).collect::<Vec<_>>());
        assert!(log.read(&subject("a"), Some(&position), 2, NOW).events.is_empty());
    }

    #[test]
    fn a_silent_creator_is_not_reset_by_the_events_of_others() {
        let mut log = ChangeLog::new("boot".into());
        let start = log.read(&subject("quiet"), None, 10, NOW).position;
        log.push(&subject("loud"), id(1), event(1));
        let later = log.read(&subject("quiet"), Some(&start), 10, NOW);
        assert!(!later.reset && later.events.is_empty());
        log.push(&subject("quiet"), id(2), event(1));
        let first = log.read(&subject("quiet"), Some(&start), 10, NOW);
        assert_eq!(first.events.len(), 1, "the first event is seen from the earlier position too");
    }

    #[test]
    fn a_position_of_another_process_or_of_the_future_is_unknown() {
        let mut log = ChangeLog::new("boot".into());
        log.push(&subject("a"), id(1), event(1));
        for position in ["other-1", "boot-2", "boot-", "boot", "", "boot-x", "boot--1"] {
            assert!(log.read(&subject("a"), Some(position), 10, NOW).reset, "{position}");
        }
    }

    #[test]
    fn a_stream_that_is_too_far_behind_is_reset() {
        let mut log = ChangeLog::new("boot".into());
        let start = log.read(&subject("a"), None, 10, NOW).position;
        for revision in 0..=4096 {
            log.push(&subject("a"), id(1), event(revision));
        }
        assert!(log.read(&subject("a"), Some(&start), 10, NOW).reset);
        assert!(
            !log.read(&subject("a"), Some("boot-1"), 10, NOW).reset,
            "the oldest kept event is the second"
        );
    }

    #[test]
    fn forgotten_creators_are_reset_and_the_log_stays_bounded() {
        let mut log = ChangeLog::new("boot".into());
        log.push(&subject("first"), id(1), event(1));
        for n in 0..TOTAL {
            log.push(&subject(&format!("creator {n}")), id(2), event(1));
        }
        assert!(log.total <= TOTAL);
        assert!(log.read(&subject("first"), Some("boot-0"), 10, NOW).reset);
        log.push(&subject("first"), id(1), event(2));
        assert!(
            log.read(&subject("first"), Some("boot-0"), 10, NOW).reset,
            "a new tail does not hide the gap"
        );
    }
}
