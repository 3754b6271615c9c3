#!/bin/sh
# Shows in a trace of system calls that the broker syncs every command's bytes before it acknowledges the command.
# Usage: bench/trace-fdatasync.sh [--broker target/release/task-broker] [--threads 32] [--keep TRACE]
set -eu
for tool in strace python3; do
    command -v "$tool" >/dev/null || { echo "$0: $tool is needed" >&2; exit 2; }
done
exec python3 "$(dirname "$0")/trace_fdatasync.py" "$@"
