#!/usr/bin/env bash
# Runs every test and benchmark that needs a GPU, on a machine with a driver and no Rust, from a
# folder made by `cargo xtask gpu-bundle`.
#
#   gpu.sh [tests] [golden] [bench] [chips] [restart] [sanitize]    parts to run; all but the last when none is named
#
#   tests      the test programs of the bundle
#   golden     perplexities of six models against float32, and what each cache costs; needs GPU_SHARED
#   bench      every synthetic shape, a long context, and loading from files
#   chips      tests and benchmarks on code and within limits of smaller chips; needs a bundle that was built
#              with PAGELLA_CUDA_ARCHS=compute_80:sm_90 (or compute_80, which the driver translates first)
#   restart    a server whose device fails while it answers; needs a C compiler and curl
#   sanitize   memcheck, racecheck, initcheck and synccheck of compute-sanitizer; slow
#
# GPU_LOGS       folder for complete output (default: logs beside this script)
# GPU_TIMEOUT    seconds that one program may run (default 300)
# GPU_SHARED     folder with models/ and golden/ (default: the part golden is MISSING)
# GPU_SHAPES     synthetic shapes to measure (default: all of them)
# GPU_CHIPS      chips that the device is held to (default 8.6 8.0)
# GPU_CHIP_SHAPES  shapes that are measured there (default llama-3.2-1b llama-3.1-8b)
# GPU_WRITE      shape that is written to a file and loaded (default llama-3.1-8b)
# GPU_SCRATCH    folder for that, with 6 GB of room (default: a temporary one)
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
shapes=${GPU_SHAPES:-anchor-1b llama-3.2-1b llama-3.1-8b qwen2.5-32b llama-3.1-70b mixtral-8x7b qwen3-30b-a3b}
written=${GPU_WRITE:-llama-3.1-8b}
chips=${GPU_CHIPS:-8.6 8.0}
chip_shapes=${GPU_CHIP_SHAPES:-llama-3.2-1b llama-3.1-8b}
as=  # the chip that the device is held to, for names of rows
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

# A name as a file's.
file_of() { printf '%s' "${1//[^A-Za-z0-9._-]/_}"; }

# attempt NAME COMMAND...: runs it with a limit, keeps its output, adds a row.
attempt() {
    local name=$as$1 started log status note
    shift
    log=$logs/$(file_of "$name").log
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

# The counts that a test program or compute-sanitizer prints, or the speeds of a benchmark.
note_of() {
    local result
    result=$(grep -hE "^test result:|ERROR SUMMARY|RACECHECK SUMMARY" "$1" | tail -n 1)
    result=${result#test result: }
    result=${result%; finished*}
    [ -n "$result" ] || result=$(speeds_of "$1")
    printf '%s' "$result"
}

# Tokens per second of prompt and writing, of the widest batch, host time of one row, loading.
speeds_of() {
    awk '
        $1 == "prompt" { said = said "prompt " $2 }
        $1 == "writing" { said = said ", writing " $2 }
        $1 == "batch" { wide = $2; for (i = 3; i < NF; i++) if ($(i + 1) ~ /^rows?,$/) rows = $i }
        $1 == "batch" && / 1 row,/ { host = $(NF - 6) }
        $1 == "loaded" { load = $(NF - 1) }
        $1 == "GPU" && $2 == "memory" { memory = $3 " " $4 }
        $1 == "written" { said = $0 }
        END {
            if (rows != "") said = said ", " rows " rows " wide
            if (host != "") said = said ", host " host " us"
            if (load != "") said = said ", load " load " GB/s"
            if (memory != "") { sub(/,$/, "", memory); said = said ", " memory }
            print said
        }' "$1"
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
    export PAGELLA_DEMO_DIR=$checkout/models/demo
    export PAGELLA_TEST_DEVICE=cuda
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
    # Suites that run on either device take this one.
    export PAGELLA_TEST_DEVICE=cuda
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

# golden MODEL FILE PREFIX PERPLEXITY: the model against the float32 values of its weights. Activations
# are rounded to binary16, which costs up to 0.006 in log-probability; ExLlamaV2 costs 0.015.
golden() {
    local model=$1 file=$GPU_SHARED/golden/$2.safetensors prefix=$3 perplexity=$4 name="golden $1" log
    if [ ! -d "$GPU_SHARED/models/$model" ] || [ ! -r "$file" ]; then
        missing "$name" "not in $GPU_SHARED"
        return
    fi
    local args=(ppl "$GPU_SHARED/models/$model" --ids "$file" --expect "$file" --device cuda --json)
    [ -n "$prefix" ] && args+=(--prefix "$prefix")
    log=$logs/golden_$model.log
    if ! timeout "$limit" "$pagella" "${args[@]}" >"$log" 2>&1; then
        row FAILED "$name" - "see below"
        tail -n 5 "$log"
        return
    fi
    local found
    found=$(tr ',{}' '\n\n\n' <"$log" | awk -v expected="$perplexity" -F: '
        /"ppl"/ { ppl = $2 + 0 }
        /"rms_logprob_diff"/ { rms = $2 + 0 }
        /"argmax_match"/ { same = $2 + 0 }
        END {
            off = ppl / expected - 1
            if (off < 0) off = -off
            good = ppl > 0 && off < 0.001 && rms > 0 && rms < 0.008 && same > 0.995
            printf "%s perplexity %.4f (float32 %.4f), RMS %.4f, same id %.2f %%", good ? "ok" : "FAILED", ppl, expected, rms, 100 * same
        }')
    row "${found%% *}" "$name" - "${found#* }"
}

# caches MODEL: what each cache costs in mean log-likelihood, token by token, within the limits that hold
# on the CPU too.
caches() {
    local model=$1 file=$GPU_SHARED/golden/transformers_fp32.safetensors kind limit_of log nll fp16= said
    if [ ! -d "$GPU_SHARED/models/$model" ] || [ ! -r "$file" ]; then
        missing "caches $model" "not in $GPU_SHARED"
        return
    fi
    for kind in fp16:0 q8:0.005 q6:0.03 q4:0.10 fp8:0.10; do
        limit_of=${kind#*:} kind=${kind%:*}
        log=$logs/cache_${model}_$kind.log
        if ! timeout "$limit" "$pagella" ppl "$GPU_SHARED/models/$model" --ids "$file" --prefill 512 --steps 256 \
            --cache "$kind" --device cuda --json >"$log" 2>&1; then
            row FAILED "cache $kind $model" - "see below"
            tail -n 5 "$log"
            continue
        fi
        nll=$(tr ',{}' '\n\n\n' <"$log" | awk -F: '/"nll"/ { print $2 + 0; exit }')
        fp16=${fp16:-$nll}
        said=$(awk -v a="$nll" -v b="$fp16" -v most="$limit_of" 'BEGIN {
            off = a - b
            if (off < 0) off = -off
            good = a > 0 && off <= most
            printf "%s mean log-likelihood -%.4f, %.4f from fp16 (at most %s)", good ? "ok" : "FAILED", a, off, most
        }')
        row "${said%% *}" "cache $kind $model" - "${said#* }"
    done
}

run_golden() {
    if [ -z "${GPU_SHARED:-}" ]; then
        missing golden "GPU_SHARED names no folder with models and golden values"
        return
    fi
    if [ ! -x "$pagella" ]; then
        missing golden "no bin/pagella in the bundle"
        return
    fi
    golden target-fp16 transformers_fp32 "" 13.1495
    golden exl2-2.5bpw exact_fp32 2.5 105.7490
    golden exl2-4.0bpw exact_fp32 4.0 15.0666
    golden exl2-6.0bpw exact_fp32 6.0 13.3607
    golden gptq-g128 exact_fp32 gptq-g128 15.8990
    golden gptq-g128-act exact_fp32 gptq-g128-act 15.2131
    caches exl2-4.0bpw
    caches target-fp16
}

# measure NAME ARGUMENTS...: a benchmark on the device, with its lines.
measure() {
    local name="bench $1"
    shift
    attempt "$name" "$pagella" bench "$@" --device cuda && cat "$logs/$(file_of "$as$name").log"
}

run_bench() {
    if [ ! -x "$pagella" ]; then
        missing bench "no bin/pagella in the bundle"
        return
    fi
    local shape common=(--prompt-tokens 2048 --new-tokens 128 --batch-steps 32)
    measure demo demo
    for shape in $shapes; do
        measure "$shape" --synthetic "$shape" "${common[@]}"
    done
    measure "llama-3.1-8b gptq" --synthetic llama-3.1-8b --weights gptq "${common[@]}"
    measure "llama-3.1-8b after 8192" --synthetic llama-3.1-8b "${common[@]}" --context 8192 --batch 1,8
    measure "llama-3.1-8b after 8192 q4" --synthetic llama-3.1-8b "${common[@]}" --context 8192 --batch 1,8 --cache q4
    measure_loading
}

# Everything that depends on the chip, as if it were another one: its limits, and portable code for 8.0.
run_chips() {
    local chip shape targets
    targets=$("$pagella" doctor --json 2>/dev/null | tr -d ' \n' | grep -o '"targets":\[[^]]*\]')
    # Nothing else may be in it, or the driver takes what fits the chip better.
    case $targets in
        '"targets":["compute_80:sm_90"]') ;;
        # The driver remembers what it translated, in a cache that has to be large enough.
        '"targets":["compute_80"]') export CUDA_CACHE_MAXSIZE=4294967296 ;;
        *)
            missing chips "portable code for 8.0 alone: build with PAGELLA_CUDA_ARCHS=compute_80:sm_90"
            return
            ;;
    esac
    for chip in $chips; do
        export PAGELLA_CUDA_AS=$chip
        as="as $chip: "
        run_tests
        for shape in $chip_shapes; do
            measure "$shape" --synthetic "$shape" --prompt-tokens 2048 --new-tokens 128 --batch-steps 32
        done
        unset PAGELLA_CUDA_AS
        as=
    done
    unset CUDA_CACHE_MAXSIZE
}

# A model is written, then loaded twice: the second time surely from the page cache.
measure_loading() {
    local folder
    folder=$(mktemp -d "${GPU_SCRATCH:-${TMPDIR:-/tmp}}/pagella-load.XXXXXX") || {
        missing "bench loading" "no folder for a model"
        return
    }
    local common=(--prompt-tokens 512 --new-tokens 16 --batch 1)
    if attempt "write $written" "$pagella" bench --synthetic "$written" --write "$folder/model"; then
        measure "loading" "$folder/model" "${common[@]}"
        measure "loading again" "$folder/model" "${common[@]}"
        measure "loading with little memory" "$folder/model" "${common[@]}" --low-memory
        attempt "inspect $written" "$pagella" inspect "$folder/model" --device cuda && cat "$logs/inspect_$written.log"
    fi
    rm -rf "$folder"
}

# restarted ADDRESS FOLDER: breaks the context under four streams, and prints what is wrong with what follows.
restarted() {
    local address=$1 folder=$2 n short long before after health seen=
    short='{"prompt": "The `map()` method", "max_tokens": 24, "temperature": 0}'
    long='{"prompt": "CSS is", "max_tokens": 1900, "temperature": 0, "ban_eos_token": true, "stream": true, "n": 8}'
    text() { curl -s -H 'content-type: application/json' -d "$short" "$address/v1/completions" | grep -o '"text":"[^"]*"'; }
    before=$(text)
    [ -n "$before" ] || { echo "no answer before the failure"; return; }
    for n in 1 2 3 4; do
        curl -sN -H 'content-type: application/json' -d "$long" "$address/v1/completions" >"$folder/stream.$n" &
    done
    for _ in $(seq 2000); do grep -q data: "$folder/stream.4" && break; sleep 0.002; done
    touch "$folder/now"
    for _ in $(seq 600); do
        health=$(curl -s -w '%{http_code}' "$address/health")
        case $health in *'"restarting"'*503) seen=1 ;; *'"healthy"'*200) [ -n "$seen" ] && break ;; esac
        sleep 0.02
    done
    [ -n "$seen" ] || echo "health never said that the engine restarts"
    case $health in *200) ;; *) echo "it did not come back: $health" ;; esac
    for n in 1 2 3 4; do
        grep -q engine_restarting "$folder/stream.$n" || echo "stream $n ended without its error: $(tail -c 200 "$folder/stream.$n")"
    done
    after=$(text)
    [ "$after" = "$before" ] || echo "it said $before and says $after"
    curl -s "$address/metrics" | grep -q '^pagella_restarts_total 1$' || echo "no restart was counted"
}

# A real device error, in the real program: answers end with an error that says so, health tells the
# truth, the model comes back on a new context and says what it said.
run_restart() {
    local folder server address wrong log=$logs/restart.log
    if ! command -v cc >/dev/null || ! command -v curl >/dev/null || [ ! -x "$pagella" ]; then
        missing restart "needs bin/pagella, cc and curl"
        return
    fi
    folder=$(mktemp -d "${TMPDIR:-/tmp}/pagella-restart.XXXXXX") || return
    if ! cc -shared -fPIC -O1 -o "$folder/fault.so" "$here/gpu-fault.c" -ldl -lpthread; then
        row FAILED restart - "gpu-fault.c does not compile"
        return
    fi
    (cd "$folder" && exec timeout "$limit" env LD_PRELOAD="$folder/fault.so" GPU_FAULT="$folder/now" \
        "$pagella" serve demo --device cuda --port 0 --disable-auth --logging.format text) >"$log" 2>&1 &
    server=$!
    for _ in $(seq 300); do
        address=$(grep -om1 'http://127.0.0.1:[0-9]*' "$log")
        [ -n "$address" ] && curl -s "$address/health/ready" -o "$folder/ready" -f && break
        sleep 0.1
    done
    wrong=$(restarted "$address" "$folder" | head -n 5)
    kill "$server" 2>/dev/null
    wait "$server" 2>/dev/null
    if [ -z "$wrong" ]; then
        row ok restart - "$(grep -m1 -o 'failed: .*' "$log" | cut -c1-60)"
    else
        row FAILED restart - "$(head -n 1 <<<"$wrong")"
        printf '%s\n' "$wrong"
        tail -n 20 "$log"
    fi
    rm -rf "$folder"
}

parts=("$@")
[ ${#parts[@]} = 0 ] && parts=(tests golden bench chips restart)
for part in "${parts[@]}"; do
    case $part in
        tests | golden | bench | chips | restart | sanitize) ;;
        *) echo "unknown part '$part': there are tests, golden, bench, chips, restart and sanitize" >&2 && exit 2 ;;
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
