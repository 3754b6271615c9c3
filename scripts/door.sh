#!/bin/sh
# The tests of the door, as large as the issue asks for: 3,000 streams and as many waits opened and left, 100,000
# requests opened and taken back, 2,000 slow clients, ten times the load for half a minute. About five minutes; the
# numbers are printed. BROKER_UNDER_TEST names a release build to be tested in place of the debug build.
set -eu
cd "$(dirname "$0")/.."
ulimit -n "$(ulimit -Hn)"
DOOR_STREAMS=${DOOR_STREAMS:-3000} DOOR_RESETS=${DOOR_RESETS:-100000} DOOR_SLOW=${DOOR_SLOW:-2000} \
DOOR_LOAD_SECS=${DOOR_LOAD_SECS:-30} DOOR_LARGE=${DOOR_LARGE:-200} \
    cargo test --locked --test door -- --nocapture --test-threads 1 floods:: gone:: load:: key_server::ten_thousand
