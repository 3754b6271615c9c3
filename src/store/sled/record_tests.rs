//! The stored form of a head: all that the core can make comes back, and nothing else is believed.

use std::ops::Range;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use task_broker_core::{
    Ask, Caller, Command, CreateKey, Effect, Guard, Limits, NewTask, OnSpentKey, Payload, Quota, Request,
    Right, Transition, TtlWish, Usage, create, execute,
};

use super::*;

fn limits() -> Limits {
    Limits {
        default_ttl_ms: 1_000,
        max_ttl_ms: u64::MAX,
        default_poll_interval_ms: 2_000,
        max_payload_bytes: 4 << 20,
        quota: Quota { tasks_per_owner: u64::MAX, bytes_per_owner: u64::MAX, max_tasks: u64::MAX },
    }
}

fn payload(text: &str) -> Payload {
    Payload::new(Bytes::copy_from_slice(text.as_bytes()))
}

fn written(transition: Transition) -> Option<Task> {
    match transition.effect {
        Effect::Write { task, .. } => Some(*task),
        Effect::None | Effect::Remove { .. } => None,
    }
}

/// What somebody may do to a task, and when.
#[derive(Clone, Debug)]
struct Step {
    command: Command,
    key: Option<String>,
    by_owner: bool,
    after_ms: u64,
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-z]{0,8}", 1 => ".{0,40}", 1 => Just("é".repeat(700))]
}

/// Few enough that keys meet again, and some as long as they may be.
fn input_key() -> impl Strategy<Value = Arc<str>> {
    select(vec!["a".to_owned(), "b".to_owned(), String::new(), "ü".to_owned(), "k".repeat(128)])
        .prop_map(Arc::from)
}

fn command() -> impl Strategy<Value = Command> {
    let message = || prop::option::of(text());
    let ask = (text(), any::<u128>())
        .prop_map(|(text, digest)| Ask { payload: payload(&text), digest: Digest(digest) });
    let asking = (
        prop::collection::btree_map(input_key(), ask, 1..5),
        message(),
        select(vec![OnSpentKey::AskAgain, OnSpentKey::Reject]),
    );
    prop_oneof![
        4 => asking.prop_map(|(requests, message, on_spent)| Command::RequireInput { requests, message, on_spent }),
        4 => prop::collection::btree_map(input_key(), text().prop_map(|text| payload(&text)), 0..5)
            .prop_map(|responses| Command::ApplyInput { responses }),
        2 => (select(vec![Status::Working, Status::InputRequired]), message())
            .prop_map(|(status, message)| Command::SetStatus { status, message }),
        2 => any::<u64>().prop_map(|ttl_ms| Command::SetTtl { ttl_ms }),
        2 => text().prop_map(|text| Command::SetMeta { meta: payload(&text) }),
        1 => text().prop_map(|text| Command::Complete { result: payload(&text) }),
        1 => (text(), text()).prop_map(|(error, message)| Command::Fail { error: payload(&error), message }),
        1 => message().prop_map(|reason| Command::Cancel { reason }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop::option::of(select(vec!["k", "l", "m"]).prop_map(str::to_owned));
    let key = prop_oneof![3 => key, 1 => "[a-z]{1,128}".prop_map(Some)];
    (command(), key, any::<bool>(), 0..100_u64).prop_map(|(command, key, by_owner, after_ms)| Step {
        command,
        key,
        by_owner,
        after_ms,
    })
}

/// A task at its beginning, with the time of its creation.
fn beginning() -> impl Strategy<Value = Task> {
    let subject = || {
        let names = ["worker".to_owned(), String::new(), "ü".repeat(256)];
        prop::option::of(prop_oneof![select(names.to_vec()), "[ -~]{1,40}"])
    };
    let key = prop::option::of(("[ -~]{1,128}", any::<u128>()));
    let created = prop_oneof![0..1_000_u64, Just(1_796_000_000_000), Just(u64::MAX - 10_000), Just(u64::MAX)];
    let times = (created, any::<u64>(), prop::option::of(100..3_600_000_u64));
    (any::<[u8; 16]>(), "[a-z]{1,256}", subject(), subject(), prop::option::of(text()), key, times).prop_map(
        |(id, tool, creator, owner, meta, key, (created, ttl, poll_interval_ms))| {
            let new = NewTask {
                id: TaskId::from_bytes(id),
                tool_name: Arc::from(tool),
                arguments: payload("{}"),
                ttl: TtlWish::Millis(ttl),
                owner: owner.map(Arc::from),
                poll_interval_ms,
                meta: meta.map(|meta| payload(&meta)),
                key: key.map(|(key, call)| CreateKey::new(&key, Digest(call)).unwrap()),
            };
            let caller = Caller { subject: creator.map(Arc::from), ..Caller::anonymous().with_delegation() };
            let now = Timestamp::from_millis(created);
            written(create(new, &caller, &limits(), &Usage::default(), now).unwrap()).unwrap()
        },
    )
}

/// Every state that a task goes through.
fn states(first: Task, steps: &[Step]) -> Vec<Task> {
    let mut now = first.created_at;
    let mut states = vec![first];
    for step in steps {
        now = now.saturating_add(step.after_ms);
        let task = states.last().unwrap();
        let (subject, right) =
            if step.by_owner { (&task.owner, Right::Owner) } else { (&task.creator, Right::Creator) };
        let call = Digest(u128::from(step.after_ms) << 64);
        let request = Request {
            caller: Caller { subject: subject.clone(), ..Caller::anonymous() },
            right,
            guard: Guard {
                key: step.key.as_ref().map(|key| CreateKey::new(key, call).unwrap()),
                expected_revision: None,
            },
            command: step.command.clone(),
        };
        // A refusal leaves the task as it is.
        let next = execute(task, &request, &limits(), &Usage::default(), now).ok().and_then(written);
        states.extend(next);
    }
    states
}

fn decoded(task: &Task) -> Task {
    decode(task.id, &encode(task).unwrap(), &mut Interner::default()).unwrap()
}

fn history() -> impl Strategy<Value = Vec<Task>> {
    (beginning(), prop::collection::vec(step(), 0..40)).prop_map(|(first, steps)| states(first, &steps))
}

/// The same bytes with one thing wrong.
fn harmed(bytes: &[u8], at: Index, with: u8, how: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = at.index(bytes.len());
    match how % 4 {
        0 => bytes[at] ^= with.max(1),
        1 => bytes.truncate(at),
        2 => bytes.insert(at, with),
        _ => drop(bytes.remove(at)),
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_state_that_a_task_can_have_reads_back_as_it_was(states in history()) {
        for task in states {
            prop_assert_eq!(&decoded(&task), &task);
        }
    }

    #[test]
    fn harmed_bytes_are_refused_or_read_as_another_whole_task(
        states in history(),
        harms in prop::collection::vec((any::<Index>(), any::<u8>(), any::<u8>()), 1..20),
    ) {
        let task = states.last().unwrap();
        let bytes = encode(task).unwrap();
        for (at, with, how) in harms {
            let harmed = harmed(&bytes, at, with, how);
            // Whether they are the bytes that were written is for the checksum to tell. Here they must only never
            // panic, and never make a task that the core would not know.
            if let Ok(other) = decode(task.id, &harmed, &mut Interner::default()) {
                prop_assert!(check(&other).is_ok());
                prop_assert_eq!(&decoded(&other), &other);
            }
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        drop(decode(TaskId::from_bytes([1; 16]), &bytes, &mut Interner::default()));
    }
}

/// A task with one of everything, made by the core.
fn example() -> Task {
    let new = NewTask {
        id: TaskId::from_bytes([0x11; 16]),
        tool_name: Arc::from("report"),
        arguments: payload(r#"{"q":1}"#),
        ttl: TtlWish::Millis(60_000),
        owner: Some(Arc::from("alice")),
        poll_interval_ms: Some(500),
        meta: Some(payload(r#"{"trace":"1"}"#)),
        key: Some(CreateKey::new("create", Digest(0x0102_0304)).unwrap()),
    };
    let caller = Caller::named("worker").with_delegation();
    let now = Timestamp::from_millis(1_796_000_000_000);
    let mut task = written(create(new, &caller, &limits(), &Usage::default(), now).unwrap()).unwrap();
    let question = |digest| Ask { payload: payload(r#"{"method":"q"}"#), digest: Digest(digest) };
    let commands = [
        (
            Command::RequireInput {
                requests: [("a", 1), ("b", 2)].map(|(key, digest)| (Arc::from(key), question(digest))).into(),
                message: None,
                on_spent: OnSpentKey::AskAgain,
            },
            None,
        ),
        (Command::ApplyInput { responses: [(Arc::from("a"), payload("{}"))].into() }, Some("answer")),
        (Command::SetTtl { ttl_ms: 120_000 }, Some("ttl")),
        (Command::SetStatus { status: Status::Working, message: Some("half way".into()) }, Some("status")),
    ];
    for (number, (command, key)) in (1..).zip(commands) {
        let guard = Guard {
            key: key.map(|key| CreateKey::new(key, Digest(number)).unwrap()),
            expected_revision: None,
        };
        let request = Request { caller: caller.clone(), right: Right::Creator, guard, command };
        let now = now.saturating_add(u64::try_from(number).unwrap());
        task = written(execute(&task, &request, &limits(), &Usage::default(), now).unwrap()).unwrap();
    }
    task
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// [`example`] as the first version of this program has stored it.
const EXAMPLE: &str = "
    067265706f72740106776f726b65720105616c696365000868616c662077617980d0c4cfa23484d0c4cfa234c0a907f4
    03050001c9e5cd9799f1dd98e10107000101b2f1f5b19cace1caee010d010101016202fadfcfc7aaa4bdb19b010e0102
    0101610396b8c1bb92bcf3a4130200010161010106637265617465848688080306616e73776572020101030101016101
    01620374746c0301010402c0a907bda907067374617475730401000500050180d0c4cfa23400000281d0c4cfa2340100
    0382d0c4cfa23402000483d0c4cfa23404000584d0c4cfa2340300
";

#[test]
fn the_format_is_the_one_that_is_on_disks() {
    let fixture = EXAMPLE.replace(char::is_whitespace, "");
    assert_eq!(
        hex(&encode(&example()).unwrap()),
        fixture,
        "a change of the format needs a new version of the record and a way to read this one"
    );
    let read = decode(example().id, &bytes(&fixture), &mut Interner::default()).unwrap();
    assert_eq!(read, example());
}

#[test]
fn codes_on_disk_keep_their_meaning() {
    let statuses: Vec<_> = Status::ALL.into_iter().map(|status| (status_code(status), status)).collect();
    let expected = [
        (0, Status::Working),
        (1, Status::InputRequired),
        (2, Status::Completed),
        (3, Status::Failed),
        (4, Status::Cancelled),
    ];
    assert_eq!(statuses, expected);
    let expected = [
        (0, EventKind::Create),
        (1, EventKind::RequireInput),
        (2, EventKind::ApplyInput),
        (3, EventKind::SetStatus),
        (4, EventKind::SetTtl),
        (5, EventKind::SetMeta),
        (6, EventKind::Complete),
        (7, EventKind::Fail),
        (8, EventKind::Cancel),
        (9, EventKind::Discard),
        (10, EventKind::Expired),
    ];
    assert_eq!((0..).zip(KINDS).collect::<Vec<_>>(), expected);
}

/// Where the code of the phase stands in the bytes of [`example`]: behind tool, creator and owner.
const PHASE: usize = 1 + "report".len() + 2 + "worker".len() + 2 + "alice".len();

#[test]
fn phases_on_disk_keep_their_meaning() {
    let payload = example().arguments;
    for (code, phase) in [
        (0, Phase::Working),
        (1, Phase::InputRequired),
        (2, Phase::Completed(payload)),
        (3, Phase::Failed(payload)),
        (4, Phase::Cancelled),
    ] {
        assert_eq!(encode(&Task { phase, ..example() }).unwrap()[PHASE], code);
    }
}

/// The example with something changed in its stored form.
fn refused(change: impl FnOnce(&mut Head<'_>)) -> bool {
    let task = example();
    let mut head = Head::from(&task);
    change(&mut head);
    let bytes = postcard::to_stdvec(&head).unwrap();
    decode(task.id, &bytes, &mut Interner::default()) == Err(Broken::Content)
}

#[test]
fn unknown_codes_are_refused() {
    assert!(!refused(|_| {}));
    let first_unknown_kind = u8::try_from(KINDS.len()).unwrap();
    for code in [first_unknown_kind, 12, 100, u8::MAX] {
        assert!(refused(|head| head.history[0].2 = code), "kind {code}");
    }
    for code in [5, 6, 100, u8::MAX] {
        assert!(refused(|head| head.replay.as_mut().unwrap().outcomes[0].status = code), "status {code}");
    }
    let intact = encode(&example()).unwrap();
    for code in 5..=127 {
        let mut changed = intact.clone();
        changed[PHASE] = code;
        assert!(decode(example().id, &changed, &mut Interner::default()).is_err(), "phase {code}");
    }
}

#[test]
fn a_record_that_breaks_a_rule_of_the_core_is_refused() {
    assert!(refused(|head| head.revision = 0));
    assert!(refused(|head| head.revision += 1), "the history ends at another revision");
    assert!(refused(|head| head.updated_at = head.created_at - 1));
    assert!(refused(|head| head.history.clear()));
    assert!(refused(|head| head.phase = StoredPhase::Cancelled), "nobody asked to cancel it");
    assert!(refused(|head| head.phase = StoredPhase::Completed(StoredRef(1, 2, 3, 4))), "a question is open");
    assert!(refused(|head| head.arguments.0 = 99), "a payload of the future");
    assert!(refused(|head| head.arguments.3 = u16::MAX), "a place that would be read as another");
    let no_key = |head: &mut Head<'_>| head.replay.as_mut().unwrap().create = Some(("", 1));
    assert!(refused(no_key), "an empty idempotency key");
}

#[test]
fn bytes_behind_the_record_are_refused() {
    let mut bytes = encode(&example()).unwrap();
    for cut in 0..bytes.len() {
        assert!(decode(example().id, &bytes[..cut], &mut Interner::default()).is_err(), "cut at {cut}");
    }
    bytes.push(0);
    assert!(decode(example().id, &bytes, &mut Interner::default()).is_err());
}

/// A length that promises more than there is must not be believed.
#[test]
fn a_huge_length_takes_no_memory() {
    let promises: [Range<usize>; 2] = [0..1, 1..2];
    for at in promises {
        let mut bytes = vec![1, b'x', 0, 0, 0, 0];
        bytes.splice(at, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        assert!(decode(example().id, &bytes, &mut Interner::default()).is_err());
    }
}
