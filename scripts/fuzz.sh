#!/usr/bin/env bash
# Runs the fuzz targets of fuzz/ one after the other, and says what each has done. docs/fuzzing.md has what they hold.
#
#   scripts/fuzz.sh                    60 s for each target
#   scripts/fuzz.sh 600                600 s for each
#   scripts/fuzz.sh 600 token rpc      only these
#
# What is found lies in fuzz/artifacts/TARGET; the corpus grows in fuzz/corpus/TARGET, beside the seeds in fuzz/seeds. A
# finding becomes a seed, and with that a test. cargo-fuzz is installed into target/tools when it is missing.
#
# Instrumentation is an unstable option of rustc. With the stable toolchain, which is all that this project needs
# otherwise, RUSTC_BOOTSTRAP=1 makes it take the option. The address sanitizer is used where the toolchain brings its
# runtime; there is no unsafe code here, so what it adds is a look at the dependencies. SANITIZER=none goes without.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=60
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
    seconds=$1
    shift
fi
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || mapfile -t targets < <(cd fuzz/fuzz_targets && ls -- *.rs | sed 's/\.rs$//')

export PATH="$PWD/target/tools/bin:$PATH"
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "installing cargo-fuzz into target/tools"
    cargo install --quiet --locked --root target/tools cargo-fuzz --version 0.13.1
fi

rustc --version | grep -q nightly || export RUSTC_BOOTSTRAP=1
sanitizer=${SANITIZER:-}
if [ -z "$sanitizer" ]; then
    sanitizer=none
    ls "$(rustc --print sysroot)"/lib/rustlib/*/lib/librustc*_rt.asan.a >/dev/null 2>&1 && sanitizer=address
fi
# The release profile of fuzz/Cargo.toml checks assertions and overflows.
options=(--sanitizer "$sanitizer")
echo "sanitizer: $sanitizer; $seconds s for each of: ${targets[*]}"
cargo fuzz build "${options[@]}"
programs=fuzz/target/$(rustc -vV | sed -n 's/^host: //p')/release

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
rows=()
for target in "${targets[@]}"; do
    [ -f "fuzz/fuzz_targets/$target.rs" ] || { echo "fuzz.sh: there is no target $target" >&2; exit 2; }
    mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
    printf '\n== %s\n' "$target"
    outcome=clean
    # An input may have 32 KiB, take 10 s and 2 GiB at most; the targets themselves measure memory more finely.
    "$programs/$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -artifact_prefix="fuzz/artifacts/$target/" \
        -max_total_time="$seconds" -max_len=32768 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        >"$log" 2>&1 || outcome=FAILED
    count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    cover=$(grep -o 'cov: [0-9]*' "$log" | tail -1 || true)
    # A target that has run nothing has shown nothing.
    [ "${count:-0}" -gt 0 ] || outcome=FAILED
    if [ "$outcome" = FAILED ]; then
        failed=1
        tail -60 "$log"
    fi
    rows+=("$(printf '%-10s %12s executions  %-12s %s' "$target" "${count:-0}" "${cover:-cov: ?}" "$outcome")")
    echo "${rows[-1]}"
done
printf '\n== all targets\n'
printf '%s\n' "${rows[@]}"
exit "$failed"
