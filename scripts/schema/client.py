"""Calls every method of POST /rpc with params that are generated from openapi.yaml, and judges every answer by it.

Good params come from the schema of the method; bad ones are good ones that were broken in one place. What must hold:

- schemathesis' checks of status code, content type, headers, and schema of the answer, and no server error;
- an answer is that of the method: its result is one of the method's own schema, not just of any method's;
- params that the schema allows are never refused for their shape, those that it forbids always are;
- every method was answered with a result at least once.
"""

import argparse
import collections
import copy
import json
import os
import sys

import hypothesis
import jsonschema
import requests
import schemathesis
import yaml
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

# Methods that come to an end by themselves: a stream is closed after its first message.
STREAM = "store/watch"
# Kinds that say that the call itself was not in order.
SHAPE = {"invalid_params", "invalid_request", "parse_error", "method_not_found"}
# What a well-formed call may be refused with for its params all the same: bounds that are in bytes, where a schema
# counts characters, and cursors, which only the broker can make. By the member that the answer names.
BYTES = {"owner", "idempotencyKey", "cursor"}


def inlined(document, schema):
    """The schema with all references replaced by what they name. The document has no cycles."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            target = document
            for step in schema["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            return inlined(document, target)
        return {key: inlined(document, value) for key, value in schema.items() if key not in ("description", "default")}
    if isinstance(schema, list):
        return [inlined(document, item) for item in schema]
    return schema


def flat(schema):
    """An object's schema without `allOf`: hypothesis-jsonschema is slow where it has to merge."""
    if not isinstance(schema, dict):
        return schema
    schema = {key: flat(value) for key, value in schema.items()} if "properties" not in schema else {
        **schema, "properties": {name: flat(value) for name, value in schema["properties"].items()}}
    whole = {}
    for part in [*map(flat, schema.pop("allOf", [])), schema]:
        for key, value in part.items():
            if key == "properties":
                whole[key] = {**whole.get(key, {}), **value}
            elif key == "required":
                whole[key] = sorted({*whole.get(key, []), *value})
            else:
                whole[key] = value
    return whole


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


class Client:
    def __init__(self, document, url, token):
        self.document = document
        self.url = url
        self.session = requests.Session()
        if token:
            self.session.headers["authorization"] = f"Bearer {token}"
        self.operation = schemathesis.openapi.from_dict(document)["/rpc"]["POST"]
        self.counts = collections.defaultdict(collections.Counter)
        self.made = 0

    def validator(self, name):
        schema = {"$ref": f"#/components/schemas/{name}", "components": self.document["components"]}
        return jsonschema.Draft202012Validator(schema)

    def post(self, call):
        """Sends a call; gives the answer after schemathesis has looked at it."""
        stream = isinstance(call, dict) and call["method"] == STREAM
        headers = {"accept": "text/event-stream"} if stream else {}
        case = self.operation.Case(body=call, media_type="application/json")
        answer = self.session.post(f"{self.url}/rpc", json=call, headers=headers, stream=stream, timeout=60)
        if stream and answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream"):
            lines = []
            for line in answer.iter_lines():
                if line.startswith(b"data:"):
                    lines.append(json.loads(line.removeprefix(b"data:")))
                    break
            answer.close()
            return {"stream": lines[0]}
        case.validate_response(answer, checks=CHECKS)
        return None if answer.status_code == 202 else answer.json()

    def call(self, method, params):
        self.made += 1
        answer = self.post({"jsonrpc": "2.0", "id": self.made, "method": method, "params": params})
        if "stream" not in answer:
            assert answer["id"] == self.made, f"the id of another call: {answer}"
        return answer

    def task(self, status):
        """A live task in this status, made for this call."""
        answer = self.call("store/create", {"toolName": "t", "ttlMs": 600000})
        task = answer["result"]["task"]["taskId"]
        question = {"taskId": task, "inputRequests": {"k": {"method": "m"}, "l": {"method": "m"}}}
        steps = {
            "working": [],
            "input_required": [("store/requireInput", question)],
            "completed": [("store/complete", {"taskId": task, "result": {"content": []}})],
            "failed": [("store/fail", {"taskId": task, "error": {"code": 1, "message": "m", "data": None}})],
            "cancelled": [("store/cancel", {"taskId": task})],
        }
        for method, params in steps[status]:
            self.call(method, params)
        return task


def usable(client, method, params, status, live):
    """Params in which what only a broker can know is put right: most calls shall get further than to an unknown task."""
    params = copy.deepcopy(params)
    if live and "taskId" in params:
        params["taskId"] = client.task(status)
        params.pop("expectedRevision", None)
    if live and "taskIds" in params:
        params["taskIds"] = [*params["taskIds"][:3], client.task(status)]
    if live and method == "store/list":
        params.pop("cursor", None)
    if method in ("store/applyInput", "tasks/update") and live:
        params["inputResponses"] = {**params.get("inputResponses", {}), "k": {"action": "accept"}}
    if method == "store/wait":
        params["timeoutMs"] = min(params.get("timeoutMs") or 0, 20)
    return params


def outcome_of(answer):
    if "stream" in answer:
        return "result"
    return "result" if "result" in answer else answer["error"]["data"]["kind"]


def good(client, name, method, params):
    """A call that the document allows."""
    answer = client.call(method, params)
    outcome = outcome_of(answer)
    client.counts[method][outcome] += 1
    if "stream" in answer:
        client.validator(f"{name}Result").validate(answer["stream"])
    elif outcome == "result":
        client.validator(f"{name}Result").validate(answer["result"])
    elif outcome in SHAPE:
        data = answer["error"]["data"]
        assert data.get("member", "").split(".")[0] in BYTES | {"inputRequests"}, (
            f"{method} refused what the document allows: {answer['error']} for {json.dumps(params)[:500]}"
        )


def bad(client, name, method, params):
    """A call that the document forbids."""
    answer = client.call(method, params)
    client.counts[method][f"bad: {outcome_of(answer)}"] += 1
    allowed = SHAPE | ({"limit_exceeded"} if method in ("store/create", "store/requireInput") else set())
    assert outcome_of(answer) in allowed, (
        f"{method} took what the document forbids: {json.dumps(answer)[:500]} for {json.dumps(params)[:500]}"
    )


def broken(schema, params, draw):
    """The params with one member removed, replaced or added."""
    params = copy.deepcopy(params)
    names = sorted(schema.get("properties", {}))
    if not names:
        return params
    name = draw(st.sampled_from(names))
    if name in params and draw(st.booleans()):
        del params[name]
    else:
        params[name] = draw(ANY)
    return params


def raw(client):
    """Calls that no JSON library writes: members twice, lone surrogates, numbers that fit nowhere."""
    texts = [
        ('{"jsonrpc":"2.0","id":1,"id":1,"method":"store/info"}', "invalid_request"),
        ('{"jsonrpc":"2.0","id":null,"method":"store/info"}', "invalid_request"),
        ('{"jsonrpc":"2.0","id":1,"method":"store/get","params":{"taskId":"a","task\\u0049d":"a"}}', "invalid_params"),
        ('{"jsonrpc":"2.0","id":1,"method":"store/get","params":{"taskId":"\\ud800"}}', "invalid_params"),
        ('{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"t","ttlMs":1e3}}', "invalid_params"),
        ('{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"t","ttlMs":18446744073709551616}}', "invalid_params"),
        ('{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"t","arguments":[1e400,"\\ud800"]}}', None),
        ('{"jsonrpc":"2.0","id":1,"method":"store/nothing"}', "method_not_found"),
        ('{"jsonrpc":"2.0","id":1,"method":"store/get","params":[]}', "invalid_params"),
        ("[]", "invalid_request"),
        ("[1]", "invalid_request"),
        ("{", "parse_error"),
        ("", "parse_error"),
    ]
    for text, kind in texts:
        case = client.operation.Case(body={}, media_type="application/json")
        answer = client.session.post(
            f"{client.url}/rpc", data=text.encode(), headers={"content-type": "application/json"}, timeout=60
        )
        case.validate_response(answer, checks=CHECKS)
        body = answer.json()
        body = body[0] if isinstance(body, list) else body
        found = body.get("error", {}).get("data", {}).get("kind")
        assert found == kind, f"{kind} was expected for {text}: {body}"
    return len(texts)


def batch(client, sample, names):
    """All methods that may be in a batch in one, with the last good params of each, and a notification among them."""
    calls = [
        {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
        for method, params in sample.items()
        if method not in ("store/wait", STREAM)
    ]
    assert len(calls) >= 15, f"only {len(calls)} methods have params"
    answers = client.post([*calls[:3], {"jsonrpc": "2.0", "method": "store/info"}, *calls[3:]])
    assert [answer["id"] for answer in answers] == [call["id"] for call in calls], "answers in another order"
    for answer in answers:
        if "result" in answer:
            client.validator(f"{names[answer['id']]}Result").validate(answer["result"])
    return len(answers)


def run(client, each, seed):
    schemas = client.document["components"]["schemas"]
    methods = schemas["Call"]["discriminator"]["mapping"]
    statuses = schemas["Status"]["enum"]
    failures = []
    sample, names = {}, {}
    for method, reference in methods.items():
        name = reference.rsplit("/", 1)[-1].removesuffix("Call")
        names[method] = name
        schema = flat(inlined(client.document, schemas[f"{name}Params"]))
        judge = client.validator(f"{name}Params")
        settings = hypothesis.settings(
            max_examples=each, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck),
            phases=[hypothesis.Phase.generate], print_blob=False,
        )

        @hypothesis.seed(seed)
        @settings
        @hypothesis.given(from_schema(schema), st.sampled_from(statuses), st.integers(0, 3))
        def allowed(params, status, live):
            sample[method] = usable(client, method, params, status, live > 0)
            good(client, name, method, sample[method])

        @hypothesis.seed(seed)
        @settings
        @hypothesis.given(from_schema(schema), st.data())
        def forbidden(params, data):
            params = broken(schema, usable(client, method, params, "working", False), data.draw)
            if not judge.is_valid(params):
                bad(client, name, method, params)

        for test in (allowed, forbidden):
            try:
                test()
            except BaseException as error:  # noqa: BLE001: whatever it is, it is told and fails the run
                if isinstance(error, KeyboardInterrupt):
                    raise
                failures.append(f"{method}, {test.__name__}: {type(error).__name__}: {error}")
    try:
        client.counts["(raw texts)"]["checked"] += raw(client)
        client.counts["(batch)"]["answers"] += batch(client, sample, names)
    except Exception as error:  # noqa: BLE001
        failures.append(f"raw texts and batch: {error}")
    for method in methods:
        if not client.counts[method]["result"]:
            failures.append(f"{method} was never answered with a result")
        if method != "store/info" and not any(kind.startswith("bad: ") for kind in client.counts[method]):
            failures.append(f"{method} was never sent with bad params")
    return failures


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("document")
    arguments.add_argument("url")
    arguments.add_argument("--each", type=int, default=25)
    arguments.add_argument("--seed", type=int, default=0)
    arguments = arguments.parse_args()
    with open(arguments.document, encoding="utf-8") as file:
        document = yaml.safe_load(file)
    client = Client(document, arguments.url, os.environ.get("TOKEN"))
    failures = run(client, arguments.each, arguments.seed)
    for method, counts in client.counts.items():
        total = sum(counts.values())
        print(f"{method:20} {total:4}  " + ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())))
    print(f"{client.made} calls")
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
