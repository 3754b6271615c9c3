//! Random histories: small alphabets, so that keys, texts and idempotency keys meet again and again.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use task_broker_core::{Caller, Command, OnSpentKey, Right, Status, Subject};

use crate::support::{apply_input, ask, payload};

/// The people of the histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Person {
    Worker,
    Alice,
    Bob,
    /// The empty subject, which is not the same as none.
    Empty,
    Nobody,
}

impl Person {
    pub(crate) fn subject(self) -> Subject {
        match self {
            Self::Worker => Some(Arc::from("worker")),
            Self::Alice => Some(Arc::from("alice")),
            Self::Bob => Some(Arc::from("bob")),
            Self::Empty => Some(Arc::from("")),
            Self::Nobody => None,
        }
    }

    pub(crate) fn caller(self) -> Caller {
        Caller { subject: self.subject(), ..Caller::default() }
    }
}

/// A command on plain texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Ask {
        questions: BTreeMap<&'static str, &'static str>,
        message: Option<&'static str>,
        on_spent: OnSpentKey,
    },
    Answer(BTreeMap<&'static str, &'static str>),
    SetStatus(Status, Option<&'static str>),
    SetTtl(u64),
    SetMeta(&'static str),
    Complete(&'static str),
    Fail(&'static str, &'static str),
    Cancel(Option<&'static str>),
    Discard,
}

impl Wish {
    pub(crate) fn command(&self) -> Command {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        match self {
            Self::Ask { questions, message, on_spent } => Command::RequireInput {
                requests: questions.iter().map(|(key, text)| (Arc::from(*key), ask(text))).collect(),
                message: owned(*message),
                on_spent: *on_spent,
            },
            Self::Answer(answers) => {
                apply_input(&answers.iter().map(|(key, text)| (*key, *text)).collect::<Vec<_>>())
            }
            Self::SetStatus(status, message) => {
                Command::SetStatus { status: *status, message: owned(*message) }
            }
            Self::SetTtl(ttl_ms) => Command::SetTtl { ttl_ms: *ttl_ms },
            Self::SetMeta(meta) => Command::SetMeta { meta: payload(meta) },
            Self::Complete(result) => Command::Complete { result: payload(result) },
            Self::Fail(error, message) => {
                Command::Fail { error: payload(error), message: (*message).to_owned() }
            }
            Self::Cancel(reason) => Command::Cancel { reason: owned(*reason) },
            Self::Discard => Command::Discard,
        }
    }
}

/// Who calls, and with which right.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Creator,
    Owner,
    Anybody { person: Person, as_owner: bool },
}

impl Who {
    /// The person and whether it calls as an owner.
    pub(crate) const fn of(self, creator: Person, owner: Person) -> (Person, bool) {
        match self {
            Self::Creator => (creator, false),
            Self::Owner => (owner, true),
            Self::Anybody { person, as_owner } => (person, as_owner),
        }
    }
}

pub(crate) const fn right(as_owner: bool) -> Right {
    if as_owner { Right::Owner } else { Right::Creator }
}

/// Which revision the caller expects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    Any,
    Current,
    Earlier,
    Later,
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) wish: Wish,
    pub(crate) who: Who,
    pub(crate) key: Option<&'static str>,
    pub(crate) expect: Expect,
    /// How many bytes the owner has left.
    pub(crate) room: u64,
}

/// One step of a history, so many milliseconds after the one before.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) after_ms: i64,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Call(Call),
    /// Word for word one of the calls before.
    Again(Index),
}

/// How a history begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    pub(crate) creator: Person,
    pub(crate) owner: Person,
    pub(crate) created: u64,
    pub(crate) ttl: u64,
    pub(crate) meta: Option<&'static str>,
}

pub(crate) const MAX_TTL: u64 = 20_000;
pub(crate) const BYTES_PER_OWNER: u64 = 1_000_000;

/// Questions, and which of them say the same.
const QUESTIONS: [(&str, u8); 5] = [
    (r#"{"method":"m","params":{"n":1}}"#, 1),
    ("{ \"params\": {\"n\": 1},\n  \"method\": \"m\" }", 1),
    (r#"{"method":"m","params":{"n":1.0}}"#, 2),
    (r#"{"method":"m","params":{"n":"1"}}"#, 3),
    (r#"{"method":"other"}"#, 4),
];

/// What a question says, known beforehand.
pub(crate) fn meaning(question: &str) -> u8 {
    QUESTIONS.iter().find(|(text, _)| *text == question).map_or(0, |(_, meaning)| *meaning)
}

const KEYS: [&str; 4] = ["a", "b", "cc", "ddd"];
const ANSWERS: [&str; 3] = [r#"{"ok":true}"#, r#"{"ok":false}"#, r#"{"ok":"a much longer answer"}"#];
const META: [&str; 3] = ["{}", r#"{"trace":"1"}"#, r#"{"trace":"22"}"#];
const RESULTS: [&str; 2] = [r#"{"content":[]}"#, r#"{"content":[],"isError":true}"#];
const ERRORS: [&str; 2] = [r#"{"code":-32603,"message":"broken"}"#, LARGE];
const MESSAGES: [&str; 3] = ["Awaiting client input", "Half way", ""];
const TTLS: [u64; 6] = [0, 300, 2_000, MAX_TTL, MAX_TTL + 1, u64::MAX];

/// An error that is larger than what a failure is granted beyond the quota.
const LARGE: &str = match std::str::from_utf8(&LARGE_BYTES) {
    Ok(text) => text,
    Err(_) => "",
};
const LARGE_BYTES: [u8; 5_000] = {
    let mut bytes = [b'x'; 5_000];
    bytes[0] = b'"';
    bytes[4_999] = b'"';
    bytes
};

fn entries(
    texts: Vec<&'static str>,
    least: usize,
) -> impl Strategy<Value = BTreeMap<&'static str, &'static str>> {
    (subsequence(KEYS.to_vec(), least..=KEYS.len()), prop::collection::vec(select(texts), KEYS.len()))
        .prop_map(|(keys, texts)| keys.into_iter().zip(texts).collect())
}

fn questions(least: usize) -> impl Strategy<Value = BTreeMap<&'static str, &'static str>> {
    entries(QUESTIONS.iter().map(|(text, _)| *text).collect(), least)
}

fn message() -> impl Strategy<Value = Option<&'static str>> {
    prop::option::of(select(MESSAGES.to_vec()))
}

fn wish() -> impl Strategy<Value = Wish> {
    let on_spent = || select(vec![OnSpentKey::AskAgain, OnSpentKey::Reject]);
    let asking = |least| {
        (questions(least), message(), on_spent()).prop_map(|(questions, message, on_spent)| Wish::Ask {
            questions,
            message,
            on_spent,
        })
    };
    prop_oneof![
        12 => asking(1),
        1 => asking(0),
        12 => entries(ANSWERS.to_vec(), 0).prop_map(Wish::Answer),
        6 => (select(vec![Status::Working, Status::InputRequired]), message())
            .prop_map(|(status, message)| Wish::SetStatus(status, message)),
        1 => (select(Status::ALL.to_vec()), message())
            .prop_map(|(status, message)| Wish::SetStatus(status, message)),
        3 => select(TTLS.to_vec()).prop_map(Wish::SetTtl),
        4 => select(META.to_vec()).prop_map(Wish::SetMeta),
        1 => select(RESULTS.to_vec()).prop_map(Wish::Complete),
        1 => (select(ERRORS.to_vec()), select(MESSAGES.to_vec()))
            .prop_map(|(error, message)| Wish::Fail(error, message)),
        1 => message().prop_map(Wish::Cancel),
        1 => Just(Wish::Discard),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let anybody = (
        select(vec![Person::Worker, Person::Alice, Person::Bob, Person::Empty, Person::Nobody]),
        any::<bool>(),
    )
        .prop_map(|(person, as_owner)| Who::Anybody { person, as_owner });
    let who = prop_oneof![10 => Just(Who::Creator), 4 => Just(Who::Owner), 1 => anybody];
    let key = prop_oneof![3 => Just(None), 1 => select(vec!["k", "l", "m", "n"]).prop_map(Some)];
    let expect = prop_oneof![
        8 => Just(Expect::Any),
        2 => Just(Expect::Current),
        1 => Just(Expect::Earlier),
        1 => Just(Expect::Later),
    ];
    let room = prop_oneof![6 => Just(BYTES_PER_OWNER), 1 => 0..80_u64, 1 => Just(0)];
    (wish(), who, key, expect, room).prop_map(|(wish, who, key, expect, room)| Call {
        wish,
        who,
        key,
        expect,
        room,
    })
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let after_ms = prop_oneof![10 => 0..60_i64, 2 => 200..2_000_i64, 1 => -500..0_i64];
    let what = prop_oneof![6 => call().prop_map(What::Call), 1 => any::<Index>().prop_map(What::Again)];
    (after_ms, what).prop_map(|(after_ms, what)| Step { after_ms, what })
}

pub(crate) fn beginning() -> impl Strategy<Value = Beginning> {
    let people = prop_oneof![
        3 => Just((Person::Worker, Person::Alice)),
        1 => select(vec![
            (Person::Worker, Person::Worker),
            (Person::Worker, Person::Nobody),
            (Person::Nobody, Person::Alice),
            (Person::Nobody, Person::Nobody),
            (Person::Worker, Person::Empty),
        ]),
    ];
    let created = prop_oneof![9 => Just(1_000_000), 1 => Just(u64::MAX - 3_000)];
    let ttl = select(vec![1_000, 5_000, MAX_TTL, u64::MAX]);
    let meta = prop::option::of(select(META.to_vec()));
    (people, created, ttl, meta).prop_map(|((creator, owner), created, ttl, meta)| Beginning {
        creator,
        owner,
        created,
        ttl,
        meta,
    })
}
