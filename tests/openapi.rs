//! openapi.yaml, the table of methods, the kinds of error, the router and a running broker say the same.
//!
//! Requests and answers are held against the document strictly: a member that it does not have is a failure too.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]
#![allow(clippy::needless_pass_by_value, reason = "the harness takes values as they are written")]

mod harness;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use task_broker_protocol::Kind;
use task_broker_protocol::methods::TABLE;
use yaml_rust2::{Yaml, YamlLoader};

use harness::{
    Answer, Auth, BrokerOptions, Client, EventStream, Outgoing, Store, id_of, poll_until, question, token,
};

const TEXT: &str = include_str!("../openapi.yaml");
const ROUTER: &str = include_str!("../src/http/mod.rs");

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| to_json(&YamlLoader::load_from_str(TEXT).unwrap()[0]));

fn to_json(yaml: &Yaml) -> Value {
    match yaml {
        // Above 2^63 the reader makes no integer of it.
        Yaml::Real(text) => {
            text.parse::<u64>().map_or_else(|_| json!(text.parse::<f64>().unwrap()), Value::from)
        }
        Yaml::Integer(number) => json!(number),
        Yaml::String(text) => json!(text),
        Yaml::Boolean(value) => json!(value),
        Yaml::Array(items) => items.iter().map(to_json).collect(),
        Yaml::Hash(members) => Value::Object(
            members
                .iter()
                .map(|(key, value)| (key.as_str().expect("a name").to_owned(), to_json(value)))
                .collect(),
        ),
        Yaml::Null => Value::Null,
        Yaml::Alias(_) | Yaml::BadValue => panic!("{yaml:?} in the document"),
    }
}

fn schemas() -> &'static serde_json::Map<String, Value> {
    DOCUMENT["components"]["schemas"].as_object().unwrap()
}

/// The target of a reference to a schema.
fn referred(reference: &Value) -> &str {
    let target = reference["$ref"].as_str().unwrap_or_else(|| panic!("no reference: {reference}"));
    target.strip_prefix("#/components/schemas/").unwrap()
}

/// `store/requireInput` and `Params` make `StoreRequireInputParams`.
fn schema_name(method: &str, part: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    method.split('/').map(capital).chain([part.to_owned()]).collect()
}

/// What is wrong with `value` under the schema of this name. Strictly: members that it does not name are wrong too.
fn complaints(schema: &str, value: &Value) -> Vec<String> {
    assert!(schemas().contains_key(schema), "no schema {schema}");
    let root = json!({
        "allOf": [{"$ref": format!("#/components/schemas/{schema}")}],
        "unevaluatedProperties": false,
        "components": DOCUMENT["components"],
    });
    let validator = jsonschema::draft202012::options().should_validate_formats(true).build(&root).unwrap();
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[track_caller]
fn assert_fits(schema: &str, value: &Value) {
    let complaints = complaints(schema, value);
    assert!(complaints.is_empty(), "not a {schema}: {complaints:#?} in {value:#}");
}

/// Holds a result against the schema of its method, and the objects inside it against theirs.
#[track_caller]
fn assert_result(method: &str, result: &Value) {
    assert_fits(&schema_name(method, "Result"), result);
    for row in result["tasks"].as_array().into_iter().flatten() {
        assert_fits("Row", row);
    }
    let rows = result["tasks"].as_array().into_iter().flatten();
    for task in rows.map(|row| &row["task"]).chain(result.get("task")) {
        assert_fits("Task", task);
    }
    for state in result["statuses"].as_object().into_iter().flatten().map(|(_, state)| state) {
        assert!(state.is_null() || complaints("State", state).is_empty(), "{state}");
    }
}

/// The schema of an error by its kind, with its `x-http-status`.
static ERRORS: LazyLock<BTreeMap<String, &'static Value>> = LazyLock::new(|| {
    let errors =
        schemas()["Error"]["oneOf"].as_array().unwrap().iter().map(|error| &schemas()[referred(error)]);
    errors
        .map(|schema| {
            let kind = &schema["properties"]["data"]["properties"]["kind"]["const"];
            (kind.as_str().unwrap().to_owned(), schema)
        })
        .collect()
});

/// Holds an error's answer against the document, and gives its kind.
#[track_caller]
fn assert_error(answer: &Value) -> String {
    assert_fits("Failure", answer);
    let data = answer["error"]["data"].as_object().unwrap();
    let kind = data["kind"].as_str().unwrap();
    let wanted = ERRORS[kind]["properties"]["data"]["required"].as_array();
    let wanted = wanted.into_iter().flatten().map(|name| name.as_str().unwrap()).chain(["kind"]);
    assert_eq!(data.keys().map(String::as_str).collect::<BTreeSet<_>>(), wanted.collect(), "{answer}");
    kind.to_owned()
}

/// A client whose calls and answers are held against the document.
struct Caller {
    client: Client,
    called: RefCell<BTreeSet<String>>,
}

impl Caller {
    fn new(client: Client) -> Self {
        Self { client, called: RefCell::default() }
    }

    /// Makes a call that is as the document wants it, and gives its result.
    async fn ask(&self, method: &str, params: Value) -> Value {
        assert_fits("Request", &json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}));
        assert_fits(&schema_name(method, "Params"), &params);
        let answer = self.client.call(method, params).await;
        let result = answer.result();
        assert_fits("Success", &answer.json());
        assert_result(method, &result);
        self.called.borrow_mut().insert(method.to_owned());
        result
    }

    /// Asks for the task as its owner sees it, and gives its status.
    async fn status(&self, id: &str) -> Value {
        self.ask("tasks/get", json!({"taskId": id})).await["status"].clone()
    }

    /// Opens a stream.
    async fn watch(&self) -> EventStream {
        let params = json!({"since": null});
        assert_fits("StoreWatchParams", &params);
        self.called.borrow_mut().insert("store/watch".to_owned());
        self.client.watch(params).await
    }
}

/// Reads a stream until every kind of event has come that the document knows.
async fn assert_events(mut stream: EventStream) {
    let event = &schemas()["StoreEvent"]["properties"]["params"]["properties"]["kind"]["enum"];
    let mut missing: BTreeSet<_> =
        event.as_array().unwrap().iter().map(|kind| kind.as_str().unwrap()).collect();
    while !missing.is_empty() {
        let message = stream.next().await;
        let notification = json!({"jsonrpc": "2.0", "method": message.method, "params": message.params});
        assert_fits("StoreWatchResult", &notification);
        assert_eq!(message.position(), &message.id);
        missing.remove(message.params["kind"].as_str().unwrap_or_default());
    }
}

#[test]
fn every_method_has_its_schemas_and_every_such_schema_its_method() {
    let parts = ["Call", "Params", "Result"];
    let expected: BTreeSet<_> =
        TABLE.iter().flat_map(|entry| parts.map(|part| schema_name(entry.name, part))).collect();
    let of_methods = |name: &&String| {
        (name.starts_with("Store") || name.starts_with("Tasks"))
            && parts.iter().any(|part| name.ends_with(part))
    };
    assert_eq!(schemas().keys().filter(of_methods).cloned().collect::<BTreeSet<_>>(), expected);

    let call = &schemas()["Call"];
    let calls: Vec<_> = TABLE.iter().map(|entry| schema_name(entry.name, "Call")).collect();
    assert_eq!(call["oneOf"].as_array().unwrap().iter().map(referred).collect::<Vec<_>>(), calls);
    let mapping = call["discriminator"]["mapping"].as_object().unwrap();
    assert_eq!(mapping.len(), TABLE.len());
    for entry in TABLE {
        let name = schema_name(entry.name, "Call");
        assert_eq!(mapping[entry.name], format!("#/components/schemas/{name}"));
        let properties = &schemas()[&name]["properties"];
        assert_eq!(properties["method"]["const"], entry.name);
        assert_eq!(referred(&properties["params"]), schema_name(entry.name, "Params"));
    }
    // A stream is no result.
    let results: Vec<_> = TABLE.iter().filter(|entry| entry.name != "store/watch").collect();
    let named = schemas()["Success"]["properties"]["result"]["anyOf"].as_array().unwrap();
    let expected: Vec<_> = results.iter().map(|entry| schema_name(entry.name, "Result")).collect();
    assert_eq!(named.iter().map(referred).collect::<Vec<_>>(), expected);
}

#[test]
fn the_schemas_of_params_say_what_the_table_says() {
    let alone = &schemas()["Batch"]["items"]["properties"]["method"]["not"]["enum"];
    for entry in TABLE {
        let takes = |member: &str| {
            // A member of a wrong type is noticed only by a schema that names it.
            let params = json!({"taskId": "t", "toolName": "t", "taskIds": [], "inputRequests": {"k": {"method": "m"}},
                "inputResponses": {}, "status": "working", "ttlMs": 1, "meta": {}, "result": {},
                "error": {"code": 1, "message": "m"}, member: {"wrong": true}});
            let complaints = complaints(&schema_name(entry.name, "Params"), &params);
            complaints.iter().any(|complaint| complaint.starts_with(&format!("/{member}")))
        };
        for member in ["idempotencyKey", "expectedRevision"] {
            assert_eq!(takes(member), entry.changes, "{member} of {}", entry.name);
        }
        let without = complaints(&schema_name(entry.name, "Params"), &json!({}));
        assert_eq!(without.iter().any(|text| text.contains("taskId\"")), entry.takes_task, "{}", entry.name);
        assert_eq!(
            alone.as_array().unwrap().contains(&json!(entry.name)),
            entry.single_only,
            "{}",
            entry.name
        );
    }
}

#[test]
fn every_kind_of_error_is_there_with_its_code_and_status() {
    assert_eq!(ERRORS.len(), Kind::ALL.len());
    let responses = &DOCUMENT["paths"]["/rpc"]["post"]["responses"];
    for kind in Kind::ALL {
        let schema = ERRORS.get(kind.as_str()).unwrap_or_else(|| panic!("{kind} is not in the document"));
        assert_eq!(schema["properties"]["code"]["const"], kind.code(), "{kind}");
        assert_eq!(schema["x-http-status"], kind.http_status(), "{kind}");
        assert!(
            responses.get(kind.http_status().to_string()).is_some(),
            "no response {}",
            kind.http_status()
        );
    }
}

#[test]
fn the_paths_are_those_of_the_router() {
    let routes = ROUTER.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let paths = DOCUMENT["paths"].as_object().unwrap().keys().map(String::as_str);
    assert_eq!(routes.collect::<BTreeSet<_>>(), paths.collect());
    assert_eq!(DOCUMENT["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_examples_are_what_the_document_asks_for() {
    let content = &DOCUMENT["paths"]["/rpc"]["post"]["requestBody"]["content"]["application/json"];
    for (name, example) in content["examples"].as_object().unwrap() {
        assert!(complaints("Request", &example["value"]).is_empty(), "{name}");
    }
}

#[test]
fn a_wrong_answer_is_noticed() {
    let good = json!({"applied": true, "status": "working", "revision": 2});
    assert_fits("StoreSetMetaResult", &good);
    for (member, value) in
        [("status", json!("done")), ("revision", json!("2")), ("revision", json!(0)), ("surprise", json!(1))]
    {
        let mut wrong = good.clone();
        wrong[member] = value;
        assert!(!complaints("StoreSetMetaResult", &wrong).is_empty(), "{wrong}");
    }
    assert!(!complaints("StoreSetMetaResult", &json!({"applied": true, "status": "working"})).is_empty());
    let limit = json!(18_446_744_073_709_551_615_u64);
    assert!(complaints("Unsigned", &limit).is_empty(), "{:?}", schemas()["Unsigned"]);
}

async fn every_method_answers_as_the_document_says(store: Store) {
    let broker = BrokerOptions::new(store).start();
    let caller = Caller::new(broker.service("server"));
    let ask = async |method: &str, params: Value| caller.ask(method, params).await;
    let subject = caller.client.subject();
    let stream = caller.watch().await;

    let all = json!({"toolName": "report", "arguments": {"year": 2026}, "ttlMs": 60_000, "owner": subject,
        "pollIntervalMs": 500, "meta": {"trace": "t"}, "idempotencyKey": "create", "expectedRevision": null});
    let id = id_of(&ask("store/create", all).await);
    let other = id_of(&ask("store/create", json!({"toolName": "report"})).await);
    let limits = ask("store/info", json!({})).await["limits"].clone();
    let documented = schemas()["StoreInfoResult"]["properties"]["limits"]["required"].as_array().unwrap();
    assert_eq!(
        limits.as_object().unwrap().len(),
        documented.len(),
        "a limit that the document does not name"
    );
    ask("store/get", json!({"taskId": id})).await;
    let waited = ask("store/wait", json!({"taskId": id, "timeoutMs": 0, "sinceRevision": 1})).await;
    assert_eq!(waited["timedOut"], true);
    let page = ask("store/list", json!({"role": "owner", "status": ["working"], "limit": 1})).await;
    let cursor = page["nextCursor"].clone();
    ask("store/list", json!({"owner": subject, "cursor": cursor, "limit": null})).await;
    ask("store/statuses", json!({"taskIds": [id, "0".repeat(32), "no id"]})).await;

    let questions = json!({"a": question("a?"), "b": question("b?")});
    let asked = json!({"taskId": id, "inputRequests": questions, "message": "?", "onSpentKey": "reject"});
    ask("store/requireInput", asked).await;
    ask("store/get", json!({"taskId": id})).await;
    assert_eq!(caller.status(&id).await, "input_required");
    let answers = json!({"taskId": id, "inputResponses": {"a": null, "z": 1}, "expectedRevision": 2});
    assert_eq!(ask("store/applyInput", answers).await["stillOutstanding"], json!(["b"]));
    ask("tasks/update", json!({"taskId": id, "inputResponses": {"b": {"action": "accept"}}})).await;
    ask("store/resume", json!({"taskId": id})).await;
    ask("store/setStatus", json!({"taskId": id, "status": "working", "message": "at work"})).await;
    ask("store/setTtl", json!({"taskId": id, "ttlMs": u64::MAX})).await;
    ask("store/setMeta", json!({"taskId": id, "meta": {}})).await;
    assert_eq!(caller.status(&id).await, "working");

    let complete = json!({"taskId": id, "result": {"content": []}, "idempotencyKey": "complete"});
    ask("store/complete", complete.clone()).await;
    assert_eq!(ask("store/complete", complete).await["replayed"], true);
    ask("store/get", json!({"taskId": id})).await;
    assert_eq!(caller.status(&id).await, "completed");
    let failed =
        id_of(&ask("store/create", json!({"toolName": "report", "ttlMs": null, "owner": subject})).await);
    ask("store/fail", json!({"taskId": failed, "error": {"code": -32_000, "message": "m", "data": null}}))
        .await;
    ask("store/cancel", json!({"taskId": failed, "reason": "too late"})).await;
    assert_eq!(caller.status(&failed).await, "failed");
    ask("tasks/cancel", json!({"taskId": other})).await;
    assert_eq!(caller.status(&other).await, "cancelled");
    ask("store/discard", json!({"taskId": other})).await;
    ask("store/create", json!({"toolName": "report", "ttlMs": 0})).await;
    assert_events(stream).await;

    let known: BTreeSet<_> = TABLE.iter().map(|entry| entry.name.to_owned()).collect();
    assert_eq!(*caller.called.borrow(), known, "call the new method here");
}

#[tokio::test]
async fn every_method_answers_as_the_document_says_on_sled() {
    every_method_answers_as_the_document_says(Store::Sled).await;
}

#[tokio::test]
async fn every_method_answers_as_the_document_says_in_memory() {
    every_method_answers_as_the_document_says(Store::Memory).await;
}

/// Holds one refused request against the document: status, headers, body. Gives the kind of the error.
fn assert_refused(answer: &Answer) -> String {
    let response = &DOCUMENT["paths"]["/rpc"]["post"]["responses"][answer.status.to_string()];
    let name = response["$ref"].as_str().map(|path| path.trim_start_matches("#/components/responses/"));
    let response = name.map_or(response, |name| &DOCUMENT["components"]["responses"][name]);
    assert!(response.is_object(), "{answer}");
    let promised = |header: &str| name.is_some() && response["headers"].get(header).is_some();
    for header in ["WWW-Authenticate", "Retry-After", "Allow"] {
        let sent = answer.header(header);
        assert_eq!(sent.is_some(), promised(header), "{header}: {answer}");
        let schema = &DOCUMENT["components"]["headers"][header]["schema"];
        if let (Some(pattern), Some(sent)) = (schema["pattern"].as_str(), sent) {
            assert!(sent.starts_with(pattern.trim_start_matches('^')), "{answer}");
        }
        if let (Some(minimum), Some(sent)) = (schema["minimum"].as_u64(), sent) {
            assert!(sent.parse::<u64>().unwrap() >= minimum, "{answer}");
        }
    }
    let body = answer.json();
    let kind = assert_error(&body);
    if answer.status != 200 {
        let schema = response["content"]["application/json"]["schema"]["properties"]["error"].clone();
        let named = schema["anyOf"].as_array().cloned().unwrap_or_else(|| vec![schema]);
        let named: Vec<_> = named.iter().map(|error| &schemas()[referred(error)]).collect();
        assert!(
            named.contains(&ERRORS[&kind]),
            "{kind} is not what the document has under this status: {answer}"
        );
    }
    kind
}

#[tokio::test]
async fn every_error_that_can_be_made_is_as_the_document_says() {
    // Room for one wait and one stream, both taken, so that the next of each is one too many.
    let options = BrokerOptions::new(Store::Memory).auth(Auth::Optional);
    let options = options.flag("--max-waits-per-subject", 1).flag("--max-streams", 1);
    let broker = options.flag("--max-body-bytes", 1 << 20).flag("--max-payload-bytes", 1 << 20).start();
    let client = broker.user("user");
    let id = id_of(&client.create(json!({"idempotencyKey": "k"})).await);
    let call = async |method: &str, params: Value| client.call(method, params).await;
    let send = async |outgoing: Outgoing| client.send(outgoing).await;
    let rpc = |method: &str| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}).to_string();
    let stream = |client: &Client| {
        (client.clone(), Outgoing::new(rpc("store/watch")).header("accept", "text/event-stream"))
    };
    let (streamer, watch) = stream(&client);
    let mut taken = client.watch(json!({})).await;
    assert!(taken.synced().await);
    let waiting = tokio::spawn({
        let (client, params) = (client.clone(), json!({"taskId": id}));
        // The probe below may be there first.
        async move { while client.call("store/wait", params.clone()).await.status == 429 {} }
    });
    poll_until(Duration::from_secs(5), "the place for a wait is taken", async || {
        let probe = client.call("store/wait", json!({"taskId": id, "timeoutMs": 1})).await;
        (probe.status == 429).then_some(())
    })
    .await;

    let answers = [
        call("store/get", json!({"taskId": "x"})).await,
        call("store/get", json!({"taskId": 1})).await,
        call("store/setStatus", json!({"taskId": id, "status": "completed"})).await,
        call("store/setMeta", json!({"taskId": id, "meta": {}, "expectedRevision": 7})).await,
        call("store/create", json!({"toolName": "other", "idempotencyKey": "k"})).await,
        call("store/create", json!({"toolName": "x".repeat(257)})).await,
        call("store/create", json!({"toolName": "x", "owner": "bob"})).await,
        call("store/wait", json!({"taskId": id})).await,
        call("no/such", json!({})).await,
        streamer.send(watch).await,
        client.post("[]").await,
        client.post("{").await,
        client.post(" ".repeat((1 << 20) + 1)).await,
        broker.bearer("no.good.token").call("store/info", json!({})).await,
        send(Outgoing::new(rpc("store/info")).header("origin", "https://page.example")).await,
        send(Outgoing::new(rpc("store/info")).header("content-type", "text/plain")).await,
        send(Outgoing::new(rpc("store/watch"))).await,
        client.http(Method::GET, "/rpc").await,
        client.http(Method::GET, "/no/such").await,
    ];
    waiting.abort();
    let made: BTreeSet<_> = answers.iter().map(assert_refused).collect();
    // The first takes 30 s to make, the second a fault of the broker.
    let not_made = [Kind::RequestTimeout, Kind::Internal];
    let expected = Kind::ALL.into_iter().filter(|kind| !not_made.contains(kind));
    assert_eq!(
        made,
        expected.map(|kind| kind.as_str().to_owned()).collect(),
        "make the new kind of error here"
    );
}

#[tokio::test]
async fn the_other_paths_notifications_and_batches_are_as_the_document_says() {
    let broker = BrokerOptions::new(Store::Memory).start();
    let client = broker.user("user");
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let served = client.http(method.clone(), path).await.status != 405;
            let documented = item.get(method.as_str().to_lowercase()).is_some();
            assert_eq!(served, documented, "{method} {path}");
        }
        if path == "/rpc" {
            continue;
        }
        let (method, client) = match path.as_str() {
            "/export" => (Method::POST, broker.bearer(&token::scoped("boss", "tasks:admin"))),
            _ => (Method::GET, client.clone()),
        };
        let answer = client.http(method.clone(), path).await;
        assert_eq!(answer.status, 200, "{path}");
        let answers = &item[method.as_str().to_lowercase()]["responses"];
        let content = answers["200"]["content"].as_object().unwrap();
        let media_type = answer.header("content-type").unwrap().split(';').next().unwrap();
        assert!(content.contains_key(media_type), "{path}: {media_type}");
    }
    assert_eq!(client.http(Method::GET, "/openapi.yaml").await.text(), TEXT);
    let refused = client.http(Method::POST, "/export").await;
    assert_eq!((refused.status, assert_error(&refused.json()).as_str()), (403, "forbidden"));

    client.post(r#"{"jsonrpc":"2.0","method":"store/info"}"#).await.assert_accepted();
    let batch = json!([
        {"jsonrpc": "2.0", "id": "a", "method": "store/info"},
        {"jsonrpc": "2.0", "method": "tasks/get", "params": {"taskId": "x"}},
        {"jsonrpc": "2.0", "id": 2.5, "method": "tasks/get", "params": {"taskId": "x"}},
    ]);
    assert!(complaints("Request", &batch).is_empty());
    let answers = Value::Array(client.post(batch.to_string()).await.elements());
    assert!(complaints("Answers", &answers).is_empty(), "{answers}");
    assert_eq!((answers[0]["id"].clone(), answers[1]["id"].clone()), (json!("a"), json!(2.5)));
    assert_error(&answers[1]);
    let long = json!([{"jsonrpc": "2.0", "id": 1, "method": "store/wait", "params": {"taskId": "x"}}]);
    assert!(!complaints("Request", &long).is_empty(), "waits do not belong into a batch");
    assert_error(&client.post(long.to_string()).await.elements()[0]);
}
