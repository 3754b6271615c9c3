#!/usr/bin/env bash
# The long crash tests: the tests of tests/crash/ with more rounds. What they count goes into target/crash-counts.txt, and
# from there into docs/crash-tests.md, which tells what they do.
#
#   scripts/crash.sh [kill|power|damage|full|all]
#
# Needs root for power and full: they mount file systems of their own. A failing run prints CRASH_SEED=n, with which its
# random choices are repeated. Settings:
#   BROKER_UNDER_TEST   the broker; a release build of this tree by default
#   CRASH_ROUNDS        instead of 300 kills, 100 power cuts, 128 trials of damage after each kind of stop
#   CRASH_COUNTS        the file with the counts
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:-all}
case $what in kill | power | damage | full | all) ;; *)
    sed -n '2,12p' "$0" >&2
    exit 2
    ;;
esac

if [ -z "${BROKER_UNDER_TEST:-}" ]; then
    cargo build --release --locked --bin task-broker
    BROKER_UNDER_TEST=$PWD/target/release/task-broker
fi
export BROKER_UNDER_TEST
export CRASH_COUNTS=${CRASH_COUNTS:-$PWD/target/crash-counts.txt}
# What is missing fails the test: a long run that has skipped its work has said nothing.
export CI=${CI:-1}

run() {
    local name=$1 rounds=$2
    shift 2
    if [ "$what" != all ] && [ "$what" != "$name" ]; then
        return
    fi
    local began=$SECONDS
    CRASH_ROUNDS=${CRASH_ROUNDS:-$rounds} cargo test --locked --test crash -- --nocapture --test-threads 1 "$@"
    echo "$name, run: $(date -u +%F), commit $(git rev-parse --short HEAD), $((SECONDS - began)) s, $(nproc) cores, Linux $(uname -r)" \
        >>"$CRASH_COUNTS"
}

run kill 300 kills::payloads_of_up_to_2_mib compactions::a_kill
run power 100 power:: compactions::a_power
run damage 128 damage::damage_
run full 1 full:: syncs:: clocks::

cat "$CRASH_COUNTS"
