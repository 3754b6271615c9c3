#!/usr/bin/env bash
# Runs the official task scenarios of MCP against the example server twice: with tower-mcp's in-memory store and with
# RemoteTaskStore on a real broker. Prints one line for each check. Fails when a check that passes with the in-memory
# store does not pass on the broker.
#
#   scripts/conformance.sh            prints
#   scripts/conformance.sh --write    also writes the result to docs/conformance.md
#
# Installs the scenarios and, where the Node on the PATH is older than 22, a Node from npm into a cache directory
# (CONFORMANCE_CACHE, by default below XDG_CACHE_HOME). Not part of .ci/run, because it needs npm.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
'') report=() ;;
--write) report=(--write docs/conformance.md) ;;
*)
    echo "usage: scripts/conformance.sh [--write]" >&2
    exit 2
    ;;
esac

cache=${CONFORMANCE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/task-broker/conformance}
work=$(mktemp -d)
started=()
cleanup() {
    for pid in "${started[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf -- "$work"
}
trap cleanup EXIT

# Ends the script with a reason, and with the log that tells more, if there is one.
fail() {
    echo "conformance: $1" >&2
    if [ -n "${2:-}" ]; then tail -n 20 -- "$2" >&2; fi
    exit 1
}

# Installs only when what is wanted has changed.
mkdir -p -- "$cache"
if ! cmp -s scripts/conformance/package.json "$cache/package.json"; then
    rm -rf -- "$cache/node_modules" "$cache/package.json" "$cache/package-lock.json"
    cp scripts/conformance/package.json "$cache/wanted.json"
    (cd "$cache" && cp wanted.json package.json && npm install --no-audit --no-fund --loglevel=error) ||
        { rm -f -- "$cache/package.json" && fail "npm could not install the scenarios"; }
fi
node=$(command -v node || true)
version=0
if [ -n "$node" ]; then version=$("$node" -p 'process.versions.node.split(".")[0]'); fi
if [ "$version" -lt 22 ]; then node=$cache/node_modules/.bin/node; fi
"$node" --version >/dev/null || fail "no Node 22: neither on the PATH nor from npm"
scenarios() { "$node" "$cache/node_modules/@modelcontextprotocol/conformance/dist/index.js" "$@"; }

cargo build --locked --bin task-broker --bin example-mcp-server \
    --package task-broker --package task-broker-example-mcp-server
binaries=${CARGO_TARGET_DIR:-target}/debug

# Waits until a log names an address, and prints that.
address_in() {
    for _ in $(seq 200); do
        if grep -o -m 1 "$2" "$1" 2>/dev/null; then return; fi
        sleep 0.1
    done
    return 1
}

# A broker as in production: with keys, and with a service account that may name the owners of its tasks.
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/secret"
"$binaries/task-broker" token --secret-file "$work/secret" --sub conformance --aud task-broker \
    --scope tasks:delegate >"$work/token"
env -u RUST_LOG "$binaries/task-broker" serve --listen 127.0.0.1:0 --store "sled:$work/data" --log-format text \
    --jwt-secret-file "$work/secret" --jwt-audience task-broker 2>"$work/broker.log" &
started+=($!)
broker=$(address_in "$work/broker.log" '127\.0\.0\.1:[1-9][0-9]*') || fail "the broker did not start" "$work/broker.log"

# serve NAME ARGUMENT...: starts an example server and sets `url`.
serve() {
    local name=$1
    shift
    env -u RUST_LOG NO_COLOR=1 "$binaries/example-mcp-server" --listen 127.0.0.1:0 "$@" 2>"$work/$name.log" &
    started+=($!)
    url=$(address_in "$work/$name.log" 'http://127\.0\.0\.1:[1-9][0-9]*/mcp') ||
        fail "the example server ($name) did not start" "$work/$name.log"
}

# All that the package has for tasks, so that a newer one brings its new scenarios along.
mapfile -t names < <(scenarios list --server | sed -n 's/^ *- \(tasks-[a-z0-9-]*\) .*/\1/p')
[ "${#names[@]}" -gt 0 ] || fail "the package lists no task scenario"

for store in memory remote; do
    if [ "$store" = memory ]; then
        serve memory --store memory
    else
        serve remote --store "http://$broker" --token-file "$work/token"
    fi
    for name in "${names[@]}"; do
        # A scenario with a failed check exits with 1; what counts is in its file.
        scenarios server --url "$url" --scenario "$name" --output-dir "$work/results/$store/$name" \
            >"$work/scenario.log" 2>&1 || true
        compgen -G "$work/results/$store/$name/*/checks.json" >/dev/null ||
            fail "the scenario $name left no result with the store $store" "$work/scenario.log"
    done
done

# Nothing is proved if the second server kept its tasks to itself.
tasks=$(curl -fsS "http://$broker/rpc" -H "Authorization: Bearer $(cat "$work/token")" \
    -H 'Content-Type: application/json' \
    -d '{"jsonrpc":"2.0","id":1,"method":"store/list","params":{"limit":1000}}' |
    "$node" -e 'const text = require("fs").readFileSync(0, "utf8"); console.log(JSON.parse(text).result.tasks.length)')
[ "$tasks" -gt 0 ] || fail "the server with the remote store made no task in the broker"

"$node" scripts/conformance/report.mjs --results "$work/results" --tasks "$tasks" \
    --scenarios "$cache/node_modules/@modelcontextprotocol/conformance/package.json" "${report[@]}"
