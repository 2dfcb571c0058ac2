#!/bin/bash
# Instructions of one cached and one uncached read of 16 KiB and of one create, in the engine alone, without FUSE: the
# median of 5 differences between runs of N and of 2 N under valgrind's cachegrind. Timings are noise, these hardly are.
#
#   bench/cost.sh [EXAMPLE...]   another build's `target/release/examples/cost` too, to be compared with
#
# The devices are files in memory and their transfers are on threads of their own: valgrind knows no io_uring.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 1; }
cargo build --quiet --release --package platter-zpl --example cost
folder=$(mktemp -d)
trap 'umount "$folder" 2>/dev/null; rmdir "$folder"' EXIT
mount -t ramfs none "$folder"

instructions() {
    valgrind --fair-sched=yes --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null "$@" "$folder" 2>&1 |
        sed -n 's/.*I *refs: *//p' | tr -d ,
}

for program in "${CARGO_TARGET_DIR:-target}/release/examples/cost" "$@"; do
    for case in "cached 60000" "uncached 15000" "create 3000"; do
        read -r what count <<< "$case"
        for _ in 1 2 3 4 5; do
            once=$(instructions "$program" "$what" "$count")
            twice=$(instructions "$program" "$what" $((2 * count)))
            echo $(((twice - once) / count))
        done | sort -n | sed -n 3p | while read -r median; do
            echo "$what: $median instructions ($program)"
        done
    done
done
