#!/bin/sh
# The long run of the history checker (docs/history-checker.md): random concurrent calls with kills in between, judged
# task by task. Not part of .ci/run, which has a short one.
#   HISTORY_ROUNDS=10   runs, each on a new store, at least
#   HISTORY_SECS=0      seconds that the runs take together, at least
#   HISTORY_SEED=n      of the first run; every further one counts it up. Printed, and random without
#   HISTORY_CLIENTS=12  HISTORY_KILLS=4  HISTORY_CALLS=1500 (before each kill)
#   HISTORY_SHORT=1    all runs, and not every third, with tasks that expire while all clients work on them
#   BROKER_UNDER_TEST=/path/to/task-broker   another binary, a release build for instance
set -eu
cd "$(dirname "$0")/.."
exec cargo test --locked --test history -- --ignored --exact --nocapture \
    runs::calls_through_many_kills_are_linearizable_per_task
