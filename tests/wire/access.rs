//! Who may: the five rows of the design, for every method of the table that takes a task, and the rule that unknown,
//! expired and foreign are one answer.

use serde_json::{Value, json};
use task_broker_protocol::methods::{Audience, TABLE};

use crate::harness::{Answer, Auth, Broker, BrokerOptions, Client, Store, accept, id_of, token};
use crate::methods::sample_params;

const NEVER_ISSUED: &str = "00112233445566778899aabbccddeeff";

/// One row of a matrix: the subject that the task has, and the one that calls. Only equality allows.
const ROWS: [(Option<&str>, Option<&str>); 5] = [
    (None, None),
    (Some("alice"), Some("alice")),
    (Some("alice"), Some("bob")),
    (Some("alice"), None),
    (None, Some("alice")),
];

/// The methods for this audience that take a task.
fn on_one_task(audience: Audience) -> impl Iterator<Item = &'static str> {
    TABLE.iter().filter(move |entry| entry.takes_task && entry.audience == audience).map(|entry| entry.name)
}

/// Clients for the personas of a matrix; alice and bob are subjects of this test only.
struct Cast {
    alice: Client,
    bob: Client,
    anonymous: Client,
}

impl Cast {
    fn new(broker: &Broker) -> Self {
        Self { alice: broker.user("alice"), bob: broker.user("bob"), anonymous: broker.anonymous() }
    }

    fn client(&self, name: Option<&str>) -> &Client {
        match name {
            None => &self.anonymous,
            Some("alice") => &self.alice,
            Some(_) => &self.bob,
        }
    }
}

/// The parts of a snapshot that no foreign call may change.
async fn stable(creator: &Client, id: &str) -> Value {
    let mut snapshot = creator.get(id).await;
    snapshot.as_object_mut().unwrap().remove("remainingMs");
    snapshot
}

/// Makes the call and checks what the row says; a refusal must look like an id that never was, and change nothing.
async fn check(creator: &Client, caller: &Client, method: &str, id: &str, allowed: bool, row: &str) {
    if allowed {
        let answer = caller.call(method, sample_params(method, id)).await;
        assert!(!answer.is_error(), "{row}: {answer}");
        return;
    }
    let before = stable(creator, id).await;
    let answer = caller.call(method, sample_params(method, id)).await;
    let never = caller.call(method, sample_params(method, NEVER_ISSUED)).await;
    assert_eq!(answer.error().kind, "task_not_found", "{row}");
    assert_eq!(answer.fingerprint(), never.fingerprint(), "{row}: the answers can be told apart");
    assert_eq!(stable(creator, id).await, before, "{row}: a foreign call changed the task");
}

async fn the_owners_methods_follow_the_owner(broker: &Broker) {
    let cast = Cast::new(broker);
    let service = broker.service("service");
    assert!(on_one_task(Audience::Owner).count() >= 3);
    for (owner, caller) in ROWS {
        for method in on_one_task(Audience::Owner) {
            let principal = cast.client(owner).principal();
            let id = id_of(&service.create(json!({"owner": principal})).await);
            service.ask(&id, &["k1"]).await;
            let row = format!("{method} on a task of {owner:?} by {caller:?}");
            check(&service, cast.client(caller), method, &id, owner == caller, &row).await;
        }
    }
}

async fn the_workers_methods_follow_the_creator(broker: &Broker) {
    let cast = Cast::new(broker);
    assert!(on_one_task(Audience::Creator).count() >= 12);
    for (creator, caller) in ROWS {
        for method in on_one_task(Audience::Creator) {
            let id = cast.client(creator).asking_task(&["k1"]).await;
            let row = format!("{method} on a task made by {creator:?} by {caller:?}");
            let creator_client = cast.client(creator);
            check(creator_client, cast.client(caller), method, &id, creator == caller, &row).await;
        }
    }
}

async fn the_owner_of_a_delegated_task_is_no_worker(broker: &Broker) {
    let cast = Cast::new(broker);
    let service = broker.service("service");
    for owner in [&cast.alice, &cast.anonymous] {
        for method in on_one_task(Audience::Creator) {
            let id = id_of(&service.create(json!({"owner": owner.principal()})).await);
            service.ask(&id, &["k1"]).await;
            let row = format!("{method} by the owner");
            check(&service, owner, method, &id, false, &row).await;
        }
    }
}

async fn a_creator_with_a_subject_may_use_the_owners_methods_on_its_own_tasks(broker: &Broker) {
    let service = broker.service("service");
    for owner in [json!("alice"), json!(null), json!("")] {
        for method in on_one_task(Audience::Owner) {
            let id = id_of(&service.create(json!({"owner": owner})).await);
            service.ask(&id, &["k1"]).await;
            let answer = service.call(method, sample_params(method, &id)).await;
            assert!(!answer.is_error(), "{method} on a task of {owner}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_creator_without_a_subject_may_not_use_the_owners_methods_on_a_task_it_gave_away() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Off).start();
    let anonymous = broker.anonymous();
    let given = id_of(&anonymous.create(json!({"owner": "alice"})).await);
    anonymous.ask(&given, &["k1"]).await;
    for method in on_one_task(Audience::Owner) {
        check(&anonymous, &anonymous, method, &given, false, method).await;
    }
    // The worker's methods go by the creator, and its own tasks are its own.
    assert_eq!(anonymous.get(&given).await["owner"], "alice");
    let own = anonymous.new_task().await;
    assert_eq!(anonymous.call("tasks/get", json!({"taskId": own})).await.result()["taskId"], own);
}

async fn foreign_expired_and_never_issued_are_one_answer_byte_for_byte(broker: &Broker) {
    let (alice, bob) = (broker.user("alice"), broker.user("bob"));
    let foreign = alice.asking_task(&["k1"]).await;
    let foreign_expired = alice.expired_task().await;
    let own_expired = bob.expired_task().await;
    let before = stable(&alice, &foreign).await;

    for entry in TABLE.iter().filter(|entry| entry.takes_task) {
        let never = bob.call(entry.name, sample_params(entry.name, NEVER_ISSUED)).await;
        assert_eq!(never.error().kind, "task_not_found", "{}", entry.name);
        for id in
            [foreign.as_str(), &foreign_expired, &own_expired, "", "x", "../x", "\u{0}", "ÄÖ", &foreign[..31]]
        {
            let answer: Answer = bob.call(entry.name, sample_params(entry.name, id)).await;
            assert_eq!(answer.fingerprint(), never.fingerprint(), "{} on {id:?}", entry.name);
        }
    }
    assert_eq!(stable(&alice, &foreign).await, before);
}

async fn an_id_in_capitals_is_another_id(broker: &Broker) {
    let alice = broker.user("alice");
    // One in a million ids has no letter; such a one has no capitals either.
    let id = alice.new_task().await;
    if id.bytes().any(|byte| byte.is_ascii_lowercase()) {
        let answer = alice.call("store/get", json!({"taskId": id.to_uppercase()})).await;
        assert_eq!(answer.error().kind, "task_not_found");
    }
}

async fn a_very_long_id_is_simply_unknown(broker: &Broker) {
    let alice = broker.user("alice");
    let answer = alice.call("store/get", json!({"taskId": "a".repeat(10_000)})).await;
    assert_eq!(answer.error().kind, "task_not_found");
}

async fn an_id_that_is_no_string_is_refused_by_every_method(broker: &Broker) {
    let alice = broker.user("alice");
    for entry in TABLE.iter().filter(|entry| entry.takes_task) {
        for illegal in [json!(5), json!(null), json!([]), json!({}), json!(true)] {
            let mut params = sample_params(entry.name, "x");
            params["taskId"] = illegal;
            alice.call(entry.name, params).await.error().assert_invalid("taskId");
        }
        let mut params = sample_params(entry.name, "x");
        params.as_object_mut().unwrap().remove("taskId");
        alice.call(entry.name, params).await.error().assert_invalid("taskId");
    }
}

async fn a_foreign_idempotency_key_or_revision_tells_nothing(broker: &Broker) {
    let (alice, bob) = (broker.user("alice"), broker.user("bob"));
    let id = alice.new_task().await;
    let keyed = json!({"taskId": id, "meta": {"n": 1}, "idempotencyKey": "key"});
    alice.call("store/setMeta", keyed.clone()).await.result();

    let mut mismatch = keyed.clone();
    mismatch["meta"] = json!({"n": 2});
    let mut stale = keyed.clone();
    stale["expectedRevision"] = json!(77);
    for params in [keyed, mismatch, stale] {
        let mut never = params.clone();
        never["taskId"] = json!(NEVER_ISSUED);
        let answer = bob.call("store/setMeta", params).await;
        assert_eq!(answer.error().kind, "task_not_found");
        assert_eq!(answer.fingerprint(), bob.call("store/setMeta", never).await.fingerprint());
    }
}

async fn a_list_shows_each_caller_its_own_tasks_only(broker: &Broker) {
    let (alice, bob, anonymous) = (broker.user("alice"), broker.user("bob"), broker.anonymous());
    let ids = async |client: &Client| {
        let mut ids = Vec::new();
        for _ in 0..5 {
            ids.push(client.new_task().await);
        }
        ids.sort();
        ids
    };
    let (alices, bobs) = (ids(&alice).await, ids(&bob).await);
    let unowned = anonymous.new_task().await;

    for (client, own) in [(&alice, &alices), (&bob, &bobs)] {
        for params in [
            json!({"limit": 3}),
            json!({"limit": 3, "role": "owner"}),
            json!({"limit": 3, "status": ["working"]}),
            json!({"limit": 3, "owner": client.subject()}),
        ] {
            assert_eq!(walk(client, params.clone()).await, *own, "{params}");
        }
        for params in [json!({"status": ["completed"]}), json!({"owner": "somebody else"})] {
            assert_eq!(walk(client, params.clone()).await, Vec::<String>::new(), "{params}");
        }
    }
    for role in ["creator", "owner"] {
        let listed = walk(&anonymous, json!({"role": role})).await;
        assert!(listed.contains(&unowned), "{role}");
        assert!(!listed.iter().any(|id| alices.contains(id) || bobs.contains(id)), "{role}");
    }
}

/// The ids on all pages of a list, sorted.
async fn walk(client: &Client, mut params: Value) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let page = client.call("store/list", params.clone()).await.result();
        ids.extend(page["tasks"].as_array().unwrap().iter().map(id_of));
        let Some(cursor) = page.get("nextCursor") else {
            ids.sort();
            return ids;
        };
        params["cursor"] = cursor.clone();
    }
}

async fn statuses_show_a_foreign_task_as_an_unknown_one(broker: &Broker) {
    let (alice, bob) = (broker.user("alice"), broker.user("bob"));
    let (alices, bobs, expired) = (alice.new_task().await, bob.new_task().await, bob.expired_task().await);
    let params = json!({"taskIds": [alices, bobs, expired, NEVER_ISSUED]});

    let statuses = bob.call("store/statuses", params.clone()).await.result()["statuses"].clone();
    assert_eq!(statuses[&bobs]["status"], "working");
    for unknown in [alices.as_str(), &expired, NEVER_ISSUED] {
        assert_eq!(statuses.get(unknown), Some(&Value::Null), "{unknown}");
    }
    let statuses = broker.anonymous().call("store/statuses", params).await.result()["statuses"].clone();
    assert!(statuses.as_object().unwrap().values().all(Value::is_null), "{statuses}");
}

async fn subjects_are_compared_byte_by_byte(broker: &Broker) {
    let base = token::now().to_string();
    let subjects = [
        "owner",
        "owner ",
        " owner",
        "OWNER",
        "owner\n",
        "owner\u{200b}",
        "owner\u{0}",
        "\u{0}owner",
        "o\u{301}wner",
        "\u{f3}wner",
        "../owner",
        "owner/a",
        "owner:a",
        "owner/",
        "*",
        "%",
    ];
    let clients = subjects.map(|subject| broker.subject(&format!("{subject}{base}")));
    let mut ids = Vec::new();
    for client in &clients {
        ids.push(client.asking_task(&["k"]).await);
    }
    for (at, client) in clients.iter().enumerate() {
        assert_eq!(walk(client, json!({})).await, [ids[at].clone()], "{:?}", subjects[at]);
        assert_eq!(walk(client, json!({"role": "owner"})).await, [ids[at].clone()], "{:?}", subjects[at]);
        assert_eq!(client.get(&ids[at]).await["owner"], client.subject());
        let other = &ids[(at + 1) % ids.len()];
        let update = json!({"taskId": other, "inputResponses": {"k": accept("k")}});
        assert_eq!(client.call("tasks/update", update).await.error().kind, "task_not_found");
    }
}

on_both_stores!(
    the_owners_methods_follow_the_owner,
    the_workers_methods_follow_the_creator,
    the_owner_of_a_delegated_task_is_no_worker,
    a_creator_with_a_subject_may_use_the_owners_methods_on_its_own_tasks,
    foreign_expired_and_never_issued_are_one_answer_byte_for_byte,
    an_id_in_capitals_is_another_id,
    a_very_long_id_is_simply_unknown,
    an_id_that_is_no_string_is_refused_by_every_method,
    a_foreign_idempotency_key_or_revision_tells_nothing,
    a_list_shows_each_caller_its_own_tasks_only,
    statuses_show_a_foreign_task_as_an_unknown_one,
    subjects_are_compared_byte_by_byte,
);
