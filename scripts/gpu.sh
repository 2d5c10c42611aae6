#!/usr/bin/env bash
# Runs every test and benchmark that needs a GPU, on a machine with a driver and no Rust, from a
# folder made by `cargo xtask gpu-bundle`.
#
#   gpu.sh [tests] [sanitize] [bench]      parts to run; all of them when none is named
#
# GPU_LOGS       folder for complete output (default: logs beside this script)
# GPU_TIMEOUT    seconds that one program may run (default 300)
# GPU_SANITIZE   programs that compute-sanitizer watches, a pattern (default *--conformance)
#
# Nothing is left out silently: what is not there is a row of the table that says MISSING, and a
# program with a test that skipped itself says SKIPPED. The exit status is 1 when something failed, 3
# when nothing failed but something was missing or skipped.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
logs=${GPU_LOGS:-$here/logs}
limit=${GPU_TIMEOUT:-300}
sanitize=${GPU_SANITIZE:-*--conformance}
pagella=$here/bin/pagella
rows=()
n_failed=0
n_missing=0

# row WORD NAME SECONDS NOTE
row() {
    rows+=("$(printf '%-8s %-44s %7s  %s' "$1" "$2" "$3" "$4")")
    case $1 in
        FAILED) n_failed=$((n_failed + 1)) ;;
        MISSING | SKIPPED) n_missing=$((n_missing + 1)) ;;
    esac
    printf '%s\n' "${rows[-1]}"
}

missing() { row MISSING "$1" - "$2"; }

# attempt NAME COMMAND...: runs it with a limit, keeps its output, adds a row.
attempt() {
    local name=$1 started log status note
    shift
    log=$logs/${name//[^A-Za-z0-9._-]/_}.log
    started=$(date +%s%N)
    timeout "$limit" "$@" >"$log" 2>&1
    status=$?
    local seconds
    seconds=$(awk "BEGIN { printf \"%.1f\", ($(date +%s%N) - $started) / 1e9 }")
    note=$(note_of "$log")
    if [ "$status" = 0 ] && grep -q "SKIPPED" "$log"; then
        row SKIPPED "$name" "$seconds" "$note"
        grep -h "SKIPPED" "$log" | head -n 5
    elif [ "$status" = 0 ]; then
        row ok "$name" "$seconds" "$note"
    else
        [ "$status" = 124 ] && note="stopped after $limit s; $note"
        row FAILED "$name" "$seconds" "status $status; $note"
        # What a person needs first: failed cases, then the end.
        grep -E "^(test .*FAILED|---- |thread |=+ (ERROR|Error))|panicked at" "$log" | head -n 20
        tail -n 25 "$log"
    fi
    return "$status"
}

# The counts that a test program or compute-sanitizer prints.
note_of() {
    local result
    result=$(grep -hE "^test result:|ERROR SUMMARY|RACECHECK SUMMARY" "$1" | tail -n 1)
    result=${result#test result: }
    result=${result%; finished*}
    printf '%s' "$result"
}

# Paths of the build machine are compiled into the tests. Where they do not exist, a link stands in.
link_checkout() {
    local checkout=$here/checkout
    [ -n "${BUNDLE_ROOT:-}" ] || return 0
    if [ ! -d "$checkout" ]; then
        checkout=$here
        while [ "$checkout" != / ] && [ ! -d "$checkout/models/demo" ]; do checkout=$(dirname "$checkout"); done
    fi
    if [ ! -d "$checkout/models/demo" ]; then
        missing "test data" "neither in the bundle nor in a checkout around it"
        return 0
    fi
    export PAGELLA_MODELS=$checkout/models
    [ -e "$BUNDLE_ROOT" ] && return 0
    # Tests go through the folders of their crates.
    local program package
    for program in "$here"/tests/*; do
        package=$(basename "$program")
        mkdir -p "$checkout/crates/${package%%--*}"
    done
    if mkdir -p "$(dirname "$BUNDLE_ROOT")" 2>/dev/null && ln -s "$checkout" "$BUNDLE_ROOT" 2>/dev/null; then
        trap 'rm -f "$BUNDLE_ROOT"' EXIT
        echo "linked $BUNDLE_ROOT to $checkout"
    else
        missing "test data" "cannot create $BUNDLE_ROOT, where the tests look for it"
    fi
}

machine() {
    echo "commit    ${BUNDLE_COMMIT:-unknown}"
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader |
            sed 's/^/gpu       /'
    else
        missing nvidia-smi "no description of the GPU"
    fi
    if [ -x "$pagella" ]; then
        attempt doctor "$pagella" doctor && cat "$logs/doctor.log"
        grep -q "usable with" "$logs/doctor.log" || row FAILED "a usable GPU" - "see the lines of doctor above"
    else
        missing pagella "no bin/pagella in the bundle"
    fi
}

# The programs of one kind in the bundle, one per line.
programs() { find "$here/$1" -maxdepth 1 -type f -name "${2:-*}" 2>/dev/null | sort; }

run_tests() {
    local program found=
    while read -r program; do
        found=1
        attempt "$(basename "$program")" "$program" --show-output
    done < <(programs tests)
    [ -n "$found" ] || missing tests "no programs in the bundle"
}

run_sanitize() {
    local sanitizer program tool found=
    sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null)
    if [ -z "$sanitizer" ]; then
        missing compute-sanitizer "not on PATH nor in CUDA_HOME: memcheck racecheck initcheck synccheck not run"
        return
    fi
    while read -r program; do
        found=1
        for tool in memcheck racecheck initcheck synccheck; do
            attempt "$tool $(basename "$program")" \
                "$sanitizer" --tool "$tool" --error-exitcode 99 "$program" --test-threads=1
        done
    done < <(programs tests "$sanitize")
    [ -n "$found" ] || missing "sanitised tests" "no test program is called $sanitize"
}

# Name and arguments of every benchmark with the program itself. Sizes and models go here.
run_bench() {
    if [ -x "$pagella" ]; then
        attempt "bench demo" "$pagella" bench demo --device cuda && cat "$logs/bench_demo.log"
    else
        missing "bench demo" "no bin/pagella in the bundle"
    fi
    local program
    while read -r program; do
        attempt "$(basename "$program")" "$program" --bench && cat "$logs/$(basename "$program").log"
    done < <(programs benches)
}

parts=("$@")
[ ${#parts[@]} = 0 ] && parts=(tests sanitize bench)
for part in "${parts[@]}"; do
    case $part in
        tests | sanitize | bench) ;;
        *) echo "unknown part '$part': there are tests, sanitize and bench" >&2 && exit 2 ;;
    esac
done
mkdir -p "$logs" || exit 2
if [ -r "$here/bundle.env" ]; then
    # shellcheck disable=SC1091
    . "$here/bundle.env"
else
    missing bundle.env "commit and test data unknown"
fi
link_checkout
machine
for part in "${parts[@]}"; do
    printf '\n==== %s\n' "$part"
    "run_$part"
done
printf '\n==== summary (complete output in %s)\n' "$logs"
printf '%s\n' "${rows[@]}"
printf '%d failed, %d missing or skipped\n' "$n_failed" "$n_missing"
[ "$n_failed" = 0 ] || exit 1
[ "$n_missing" = 0 ] || exit 3
