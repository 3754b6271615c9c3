#!/usr/bin/env bash
# Lets a client that is generated from openapi.yaml call real brokers, and fails on any answer outside the document.
#
#   scripts/schema.sh              all four brokers: memory and sled, each with --auth off and with --auth required
#   scripts/schema.sh 10           10 good and 10 bad calls of each method in place of 25; more finds more
#
# First schemathesis calls every path as it thinks of it. Then scripts/schema/client.py, by the same rules, sends every
# method of POST /rpc with generated params, good and bad ones, and counts the outcomes: a method that was never answered
# with a result fails it. Takes about 4 minutes. Needs Python 3.10 and, once, the package index of Python.
# SEED=N repeats a run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

each=${1:-25}
seed=${SEED:-$((RANDOM * 32768 + RANDOM))}
venv=target/tools/schemathesis
if [ ! -x "$venv/bin/schemathesis" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check -r scripts/schema/requirements.txt
fi
cargo build --quiet --locked --bin task-broker
broker=$PWD/target/debug/task-broker

work=$(mktemp -d)
serving=
cleanup() {
    [ -z "$serving" ] || kill -9 "$serving" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

(umask 077 && head -c 48 /dev/urandom | base64 | tr -d '\n' >"$work/secret")
token=$("$broker" token --secret-file "$work/secret" --aud task-broker --sub schema --scope 'tasks:delegate tasks:admin')

# Starts a broker on a free port; its address is in $address then.
serve() {
    local n
    "$broker" serve --listen 127.0.0.1:0 --log-format json "$@" 2>"$work/log" &
    serving=$!
    for n in $(seq 1 300); do
        address=$(sed -n 's/.*"address":"\([0-9.:]*\)".*/\1/p' "$work/log" | head -1)
        [ -z "$address" ] || return 0
        kill -0 "$serving" 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/log" >&2
    echo "schema.sh: the broker does not listen" >&2
    exit 1
}

# schemathesis' own calls. negative_data_rejection and positive_data_acceptance tell good from bad by the HTTP status, which
# JSON-RPC does not: a call that is refused is 200. client.py has them in terms of JSON-RPC. The others of "all" are there.
every_path() {
    call_paths --phases examples,coverage
    # Arbitrary values for /rpc, one schema out of twenty for a body, take schemathesis minutes; client.py makes them.
    call_paths --phases fuzzing --exclude-path /rpc --max-examples "$each"
}

# Each request has a connection of its own: an answer that comes before the request's body (405, 401, ...) ends the
# connection, and schemathesis would take the end of one that it uses again for a failure.
call_paths() {
    SCHEMATHESIS_HOOKS=hooks PYTHONPATH=scripts/schema "$venv/bin/schemathesis" run openapi.yaml \
        --url "http://$address" "${headers[@]}" --header 'Connection: close' --seed "$seed" "$@" \
        --checks all --exclude-checks negative_data_rejection,positive_data_acceptance \
        --max-response-time 20 --request-timeout 60 --generation-database none --suppress-health-check all \
        --no-color >"$work/report" 2>&1 || { failed=1; cat "$work/report"; }
    grep -E '^ +(Tested:|[0-9]+ generated)' "$work/report" || { failed=1; tail -5 "$work/report"; }
}

failed=0
echo "seed $seed"
for store in memory: "sled:$work/data"; do
    for auth in off required; do
        [ "$store" = memory: ] || store="sled:$work/data-$auth"
        flags=(--store "$store" --auth "$auth")
        headers=()
        if [ "$auth" = required ]; then
            flags+=(--jwt-secret-file "$work/secret" --jwt-audience task-broker)
            headers=(--header "Authorization: Bearer $token")
        fi
        printf '\n== --store %s --auth %s (after %d s)\n' "${store%%:*}" "$auth" "$SECONDS"
        serve "${flags[@]}"
        # Each store and each mode once: calling all paths takes a minute and a half.
        if [ "$store $auth" = 'memory: off' ] || [ "${store%%:*} $auth" = 'sled required' ]; then
            every_path
        fi
        TOKEN=$([ "$auth" = off ] || echo "$token") "$venv/bin/python" scripts/schema/client.py openapi.yaml \
            "http://$address" --each "$each" --seed "$seed" || failed=1
        # It must have survived all that, and end in order.
        kill -TERM "$serving"
        wait "$serving" || { failed=1; tail -5 "$work/log"; echo "schema.sh: the broker ended with an error" >&2; }
        serving=
        ! grep -q '"level":"ERROR"' "$work/log" || { failed=1; grep '"level":"ERROR"' "$work/log"; }
    done
done
printf '\n== %s (%d s, seed %s)\n' "$([ "$failed" = 0 ] && echo 'all answers are in the document' || echo FAILED)" "$SECONDS" "$seed"
exit "$failed"
