#!/bin/sh
# Checks licences, sources and banned crates against deny.toml.
# Not part of .ci/run: building cargo-deny takes minutes. Advisories need a database from the network; where there is
# one: scripts/deny.sh advisories
set -eu
cd "$(dirname "$0")/.."
command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
if [ $# -eq 0 ]; then
    set -- bans licenses sources
fi
exec cargo deny --locked --workspace check --hide-inclusion-graph "$@"
