#!/bin/sh
# The tests of the door, as large as the issue asks for: 3,000 streams and as many waits opened and left, 100,000
# requests opened and taken back, 2,000 slow clients, ten times the load for half a minute. About five minutes; the
# numbers are printed. BROKER_UNDER_TEST names a release build to be tested in place of the debug build.
#
# With BENCH, the program of bench/, also what has limits that only a quiet machine can show: a third subject beside two
# that call too often, ten times the load that is carried, and what tokens cost. About ten minutes more; the exit code
# says whether the limits were kept. BENCH_ARGS are for all of these, BENCH_ROUNDS makes them shorter.
set -eu
cd "$(dirname "$0")/.."
ulimit -n "$(ulimit -Hn)"
DOOR_STREAMS=${DOOR_STREAMS:-3000} DOOR_RESETS=${DOOR_RESETS:-100000} DOOR_SLOW=${DOOR_SLOW:-2000} \
DOOR_LOAD_SECS=${DOOR_LOAD_SECS:-30} DOOR_LARGE=${DOOR_LARGE:-200} \
    cargo test --locked --test door -- --nocapture --test-threads 1 floods:: gone:: load:: key_server::ten_thousand
[ -n "${BENCH:-}" ] || exit 0
broken=0
for what in neighbours overload get; do
    printf '\n== %s\n' "$what"
    # Words, as they were given.
    # shellcheck disable=SC2086
    "$BENCH" "$what" --broker "${BROKER_UNDER_TEST:-target/release/task-broker}" ${BENCH_ROUNDS:+--rounds "$BENCH_ROUNDS"} \
        ${BENCH_ARGS:-} || broken=$?
done
exit "$broken"
