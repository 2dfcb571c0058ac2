#!/bin/bash
# What snapshots and streams cost: one figure a line, on a pool in files of a folder (default: a tmpfs of 13 GiB, so that
# the disks are no part of it).
#
#   bench/snapshots.sh [PART...]      many background destroy big small sparse; all of them by default
#
# Ratios are of runs in turn, medians of 5, of one build of Platter (BINARY, default target/release/platter).
set -euo pipefail
cd "$(dirname "$0")/.."
BINARY=${BINARY:-target/release/platter}
[ -x "$BINARY" ] || { echo "no $BINARY: cargo build --release" >&2; exit 1; }
FOLDER=${FOLDER:-}
if [ -z "$FOLDER" ]; then
    FOLDER=$(mktemp -d)
    mount -t tmpfs -o size=13G tmpfs "$FOLDER"
    OURS=$FOLDER
fi
export PLATTER_HOME=$FOLDER/home PATH=$FOLDER/bin:$PATH
mkdir -p "$FOLDER"/{bin,home,disks,mnt}
cp "$BINARY" "$FOLDER/bin/platter"
ln -s platter "$FOLDER/bin/zfs"
ln -s platter "$FOLDER/bin/zpool"
leave() {
    for pool in $(zpool list -H -o name 2>/dev/null); do zpool destroy -f "$pool"; done
    platter daemon stop >/dev/null 2>&1 || true
    if [ -n "${OURS:-}" ]; then umount -l "$OURS"; rmdir "$OURS"; fi
}
trap leave EXIT
platter daemon start >/dev/null

MNT=$FOLDER/mnt
pool() {
    for name in $(zpool list -H -o name); do zpool destroy -f "$name"; done
    rm -f "$FOLDER/disks"/*
    truncate -s "$1" "$FOLDER/disks/0"
    # With memory behind each of its pages, where what is written for the first time would pay for that.
    [ "${2:-}" != whole ] || head -c "$(stat -c %s "$FOLDER/disks/0")" /dev/zero > "$FOLDER/disks/0"
    zpool create -O mountpoint="$MNT/tank" -O atime=off tank "$FOLDER/disks/0"
}
now() { date +%s.%N; }
calculate() { awk "BEGIN { printf \"%.${2:-2}f\", $1 }"; }
median() { sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
timed() { local begin end; begin=$(now); "$@" >/dev/null; end=$(now); calculate "$end - $begin" 3; }
cold() { zpool export tank; zpool import -d "$FOLDER/disks" tank; }

# 10 000 snapshots of one data set: how fast the first and the last are made, listing them, importing the pool.
many() {
    # Each snapshot has a deadlist with an entry for each one before it: all together some 6 GB here.
    pool 9G
    zfs create tank/fs
    local batch times=() first last
    for batch in $(seq 0 99); do
        times+=("$(timed bash -ec "for n in \$(seq $((batch * 100)) $((batch * 100 + 99))); do date +%N > $MNT/tank/fs/file; zfs snapshot tank/fs@\$n; done")")
    done
    first=$(printf '%s\n' "${times[@]:0:10}" | median) last=$(printf '%s\n' "${times[@]:90:10}" | median)
    echo "many: 10 000 snapshots, each with a change: the first 1 000 at $(calculate "100 / $first" 0)/s, the last at $(calculate "100 / $last" 0)/s"
    echo "many: list of them with name and used in $(timed zfs list -H -t snapshot -o name,used -r tank/fs) s"
    zpool export tank
    echo "many: import in $(timed zpool import -d "$FOLDER/disks" tank) s"
    echo "many: destroy of all in $(timed zfs destroy -r tank/fs) s"
}

# A snapshot every second under a full write load against none: 10 s of overwriting a file from the front each.
background() {
    pool 6G whole
    zfs create -o recordsize=128k tank/fs
    local round ratios=() without with looping
    load() {
        python3 - "$MNT/tank/fs/file" 10 <<'PYTHON'
import os, sys, time
noise, written, end = memoryview(os.urandom(64 << 20)), 0, time.monotonic() + float(sys.argv[2])
descriptor = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
while time.monotonic() < end:
    place = written % (512 << 20)
    written += os.pwrite(descriptor, noise[place % (64 << 20) :][: 1 << 20], place)
began = end - float(sys.argv[2])
os.fsync(descriptor)
print(written / (time.monotonic() - began) / 1e6)
PYTHON
    }
    load > /dev/null
    for round in 1 2 3 4 5; do
        zpool sync
        without=$(load)
        zpool sync
        (while sleep 1; do zfs snapshot "tank/fs@$(date +%s)"; zfs list -H -o name -t snapshot -s creation tank/fs | head -n -2 | xargs -r -n 1 zfs destroy; done) &
        looping=$!
        with=$(load)
        kill $looping
        wait $looping 2>/dev/null || true
        zfs destroy tank/fs@% 2>/dev/null || true
        zpool wait -t free tank
        ratios+=("$(calculate "$with / $without" 3)")
    done
    echo "background: throughput with a snapshot every second, of that without ($(calculate "$without" 0) MB/s): $(printf '%s\n' "${ratios[@]}" | median) (${ratios[*]})"
}

# The last snapshot of 100 000 files is destroyed: how long that takes, and the longest wait of who writes meanwhile.
destroy() {
    pool 6G
    zfs create -o recordsize=16k tank/fs
    python3 - "$MNT/tank/fs" <<'PYTHON'
import os, sys
for folder in range(100):
    path = f"{sys.argv[1]}/{folder}"
    os.mkdir(path)
    for number in range(1000):
        with open(f"{path}/{number}", "wb") as file:
            file.write(os.urandom(16384))
PYTHON
    zfs snapshot tank/fs@all
    rm -r "$MNT/tank/fs"/*
    zfs create tank/other
    zpool sync
    waits() {
        python3 - "$MNT/tank/other/file" "$1" <<'PYTHON'
import os, sys, time
end, worst, count = time.monotonic() + float(sys.argv[2]), 0, 0
descriptor = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
while time.monotonic() < end:
    began = time.monotonic()
    os.pwrite(descriptor, os.urandom(65536), count % 1000 * 65536)
    worst, count = max(worst, time.monotonic() - began), count + 1
    time.sleep(0.001)
print(f"{worst * 1000:.1f} ms, {count} writes")
PYTHON
    }
    echo "destroy: longest write of 64 KiB while nothing else runs: $(waits 5)"
    waits 5 > "$FOLDER/waits" &
    local writer=$! took
    sleep 0.5
    took=$(timed zfs destroy tank/fs@all)
    wait $writer
    echo "destroy: the snapshot of 100 000 files in $took s, freed after $(timed zpool wait -t free tank) s more; longest write meanwhile: $(cat "$FOLDER/waits")"
}

# Big files: sending against reading cold, receiving against writing.
big() {
    pool 9G
    zfs create -o recordsize=1M tank/fs
    local n ratios=() received=() cold_read sent write
    for n in 1 2 3; do head -c 1000M /dev/urandom > "$MNT/tank/fs/$n"; done
    zfs snapshot tank/fs@a
    for n in 1 2 3 4 5; do
        cold
        cold_read=$(timed bash -c "cat $MNT/tank/fs/* > /dev/null")
        cold
        sent=$(timed bash -c 'zfs send -L tank/fs@a > /dev/null')
        ratios+=("$(calculate "$cold_read / $sent" 3)")
    done
    echo "big: send to /dev/null ($(calculate "3000 * 1.048576 / $sent" 0) MB/s), of the rate of reading cold: $(printf '%s\n' "${ratios[@]}" | median) (${ratios[*]})"
    zfs send -L tank/fs@a > "$FOLDER/stream"
    for n in 1 2 3 4 5; do
        zfs create -o recordsize=1M tank/copy
        write=$(timed bash -c "cp $FOLDER/stream $MNT/tank/copy/file && zpool sync")
        zfs destroy -r tank/copy
        zpool sync
        received+=("$(calculate "$write / $(timed bash -c "zfs receive tank/got < $FOLDER/stream && zpool sync")" 3)")
        zfs destroy -r tank/got
        zpool sync
    done
    rm "$FOLDER/stream"
    echo "big: receive from a file, of the rate of writing: $(printf '%s\n' "${received[@]}" | median) (${received[*]})"
}

# 100 000 small files: send into receive against tar into tar.
small() {
    pool 8G
    zfs create tank/fs
    python3 - "$MNT/tank/fs" <<'PYTHON'
import os, sys
for folder in range(100):
    path = f"{sys.argv[1]}/{folder}"
    os.mkdir(path)
    for number in range(1000):
        with open(f"{path}/{number}", "wb") as file:
            file.write(os.urandom(2000 + number * 7 % 6000))
PYTHON
    zfs snapshot tank/fs@a
    local n ratios=() tars sends
    for n in 1 2 3; do
        cold
        zfs create tank/tar
        tars=$(timed bash -c "tar -C $MNT/tank/fs -cf - . | tar -C $MNT/tank/tar -xf - && zpool sync")
        zfs destroy -r tank/tar
        cold
        sends=$(timed bash -c "zfs send tank/fs@a | zfs receive tank/got && zpool sync")
        zfs destroy -r tank/got
        ratios+=("$(calculate "$tars / $sends" 2)")
    done
    echo "small: send | receive of 100 000 files, times as fast as tar | tar: $(printf '%s\n' "${ratios[@]}" | median) (${ratios[*]})"
}

# A volume of 1 TiB of which 10 GiB of blocks are there: 1 % and 0.1 % of these change.
sparse() {
    pool 8G
    zfs create -s -V 1T -b 16k tank/v
    local path
    path=$(platter volume path tank/v)
    python3 - "$path" 1 <<'PYTHON'
import os, random, sys
random.seed(1)
descriptor = os.open(sys.argv[1], os.O_WRONLY)
for place in random.sample(range(1 << 26), 100000):
    os.pwrite(descriptor, os.urandom(16384), place * 16384)
PYTHON
    zfs snapshot tank/v@a
    for part in 100 1000 10000; do
        python3 - "$path" $part <<'PYTHON'
import os, random, sys
random.seed(1)
descriptor = os.open(sys.argv[1], os.O_WRONLY)
for place in random.sample(range(1 << 26), 100000)[: int(sys.argv[2])]:
    os.pwrite(descriptor, os.urandom(16384), place * 16384)
PYTHON
        zfs snapshot "tank/v@$part"
        zfs send -i @a "tank/v@$part" | wc -c > "$FOLDER/size"
        cold
        echo "sparse: 1 TiB with 100 000 blocks, $part changed since: $(timed bash -c "zfs send -i @a tank/v@$part > /dev/null") s cold, $(cat "$FOLDER/size") bytes"
    done
    cold
    echo "sparse: all of it: $(timed bash -c 'zfs send tank/v@a > /dev/null') s cold"
}

for part in ${*:-many background destroy big small sparse}; do "$part"; done
