#!/bin/bash
# What resilvers cost next to what the disks can do, and a log device next to none: one figure a line.
#
#   bench/resilver.sh [PART...]      mirror rebuild raidz missed foreground log; all of them by default
#
# The disks are loop devices over a tmpfs. Each is held to RATE MB/s and OPERATIONS a second each way (blkio cgroup), so
# that what lies apart costs as on a platter; fio measures them under the same limits. Needs root and fio.
# BINARY: the build of Platter, default target/release/platter.
set -euo pipefail
cd "$(dirname "$0")/.."
BINARY=${BINARY:-target/release/platter} RATE=${RATE:-100} OPERATIONS=${OPERATIONS:-200}
[ -x "$BINARY" ] || { echo "no $BINARY: cargo build --release" >&2; exit 1; }
FOLDER=$(mktemp -d) GROUPS_AT=$(mktemp -d)
mount -t tmpfs -o size=14G tmpfs "$FOLDER"
mount -t cgroup -o blkio none "$GROUPS_AT"
mkdir -p "$FOLDER"/{bin,home,disks,mnt} "$GROUPS_AT/platter-bench"
echo $$ > "$GROUPS_AT/platter-bench/cgroup.procs"
export PLATTER_HOME=$FOLDER/home PATH=$FOLDER/bin:$PATH
cp "$BINARY" "$FOLDER/bin/platter"
ln -s platter "$FOLDER/bin/zfs"
ln -s platter "$FOLDER/bin/zpool"
DISKS=()
forget_disks() {
    for pool in $(zpool list -H -o name 2>/dev/null); do zpool destroy -f "$pool"; done
    for disk in "${DISKS[@]}"; do losetup -d "$disk"; done
    DISKS=()
    rm -f "$FOLDER/disks"/*
}
leave() {
    forget_disks
    platter daemon stop >/dev/null 2>&1 || true
    echo $$ > "$GROUPS_AT/cgroup.procs"
    sleep 0.5
    rmdir "$GROUPS_AT/platter-bench" || true
    umount -l "$GROUPS_AT" "$FOLDER"
    rmdir "$GROUPS_AT" "$FOLDER"
}
trap leave EXIT
platter daemon start >/dev/null

MNT=$FOLDER/mnt
now() { date +%s.%N; }
calculate() { awk "BEGIN { printf \"%.${2:-2}f\", $1 }"; }
timed() { local begin end; begin=$(now); "$@" >/dev/null; end=$(now); calculate "$end - $begin" 3; }
# COUNT disks of SIZE, as fast as they can be.
disks() {
    forget_disks
    local number
    for number in $(seq "$1"); do
        truncate -s "$2" "$FOLDER/disks/$number"
        DISKS+=("$(losetup --find --show --direct-io=off "$FOLDER/disks/$number")")
    done
}
# Holds disks to the limits, or no longer.
limit() {
    local what disk
    for disk in "$@"; do
        what=$(stat -c '%Hr:%Lr' "$disk")
        for way in read write; do
            echo "$what $((RATE * 1000000))" > "$GROUPS_AT/platter-bench/blkio.throttle.${way}_bps_device"
            echo "$what $OPERATIONS" > "$GROUPS_AT/platter-bench/blkio.throttle.${way}_iops_device"
        done
    done
}
unlimit() {
    local what disk file
    for disk in "$@"; do
        what=$(stat -c '%Hr:%Lr' "$disk")
        for file in "$GROUPS_AT"/platter-bench/blkio.throttle.{read,write}_{bps,iops}_device; do echo "$what 0" > "$file"; done
    done
}
# MB/s of reading or writing a disk from one end to the other.
fio_rate() {
    fio --name=x --filename="$2" --rw="$1" --bs=1M --direct=1 --ioengine=io_uring --iodepth=8 --size=512M --minimal |
        awk -F';' -v column="$([ "$1" = read ] && echo 7 || echo 48)" '{ print $column / 1000 * 1.024 }'
}
# Files of MEGABYTES in pieces of 128 KiB in any order, a part of them written anew twice: an aged pool.
fill() {
    python3 - "$MNT/tank" "$1" <<'PYTHON'
import os, random, subprocess, sys
random.seed(1)
folder, count = sys.argv[1], int(sys.argv[2]) * 8
pieces = [(number % 16, number // 16) for number in range(count)]
files = [os.open(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY) for number in range(16)]
for round in range(3):
    random.shuffle(pieces)
    chosen = pieces if round == 0 else pieces[: count // 3]
    for number, (file, place) in enumerate(chosen):
        os.pwrite(files[file], os.urandom(131072), place * 131072)
        if number % 1000 == 999:
            os.sync()
PYTHON
    zpool sync
}
# Allocated bytes of the pool, as a part of which each disk has its share.
allocated() { zpool list -Hp -o allocated tank; }
# WHAT LAYOUT DISKS SHARE OPTION: the last of DISKS takes the place of the first; each disk holds SHARE of the pool.
replaced() {
    local what=$1 layout=$2 share=$4 option=${5:-} took slower last
    disks "$3" 1G
    last=${DISKS[-1]}
    slower=$(limit "$last"; fio_rate write "$last"; unlimit "$last")
    zpool create -f -O mountpoint="$MNT/tank" -O atime=off -O recordsize=128k tank $layout "${DISKS[@]:0:$(($3 - 1))}"
    fill "$(calculate "450 / $share" 0)"
    limit "${DISKS[@]}"
    took=$(timed zpool replace -w $option tank "${DISKS[0]}" "$last")
    unlimit "${DISKS[@]}"
    zpool status tank | grep -E "^  scan:|errors:" >&2
    echo "$what: $(calculate "$(allocated) * $share / 1e6" 0) MB in $took s, of what fio writes to the new disk ($(calculate "$slower" 0) MB/s): $(calculate "$(allocated) * $share / 1e6 / $took / $slower")"
}
mirror() { replaced "mirror: resilver of half a disk, aged" mirror 3 1; }
rebuild() { replaced "rebuild: sequential reconstruction of the same" mirror 3 1 -s; }
raidz() { replaced "raidz: resilver of a disk of seven, half full, aged" raidz 8 "1 / 7"; }

# A disk of a mirror of 1 TiB misses 1 GiB.
missed() {
    disks 2 1T
    zpool create -f -O mountpoint="$MNT/tank" tank mirror "${DISKS[@]}"
    fill 2000
    zpool offline tank "${DISKS[1]}"
    head -c 1G /dev/urandom > "$MNT/tank/missed"
    zpool sync
    limit "${DISKS[@]}"
    zpool online tank "${DISKS[1]}"
    echo "missed: 1 GiB of a mirror of 1 TiB in $(timed zpool wait -t resilver tank) s at $RATE MB/s: $(zpool status tank | grep scan:)"
    unlimit "${DISKS[@]}"
}

# Reading files from their beginning while a disk is resilvered, and before.
foreground() {
    disks 3 2G
    zpool create -f -O mountpoint="$MNT/tank" -O primarycache=metadata -O atime=off tank mirror "${DISKS[@]:0:2}"
    fill 900
    limit "${DISKS[@]}"
    reads() { fio --name=x --directory="$MNT/tank" --filename=0:1:2:3 --rw=randread --bs=128k --size=40M --runtime=8 --time_based --minimal | awk -F';' '{ print $7 / 1000 * 1.024 }'; }
    local before during
    before=$(reads)
    zpool replace tank "${DISKS[0]}" "${DISKS[2]}"
    during=$(reads)
    zpool status tank | grep -q "resilver in progress" || echo "foreground: the resilver ended before the reader did" >&2
    echo "foreground: random reads of 128 KiB during a resilver, of before ($(calculate "$before" 0) MB/s): $(calculate "$during / $before")"
    unlimit "${DISKS[@]}"
}

# Writes of 4 KiB, each made stable, with a log device in memory and without.
log() {
    disks 2 1G
    zpool create -f -O mountpoint="$MNT/tank" tank "${DISKS[0]}"
    limit "${DISKS[0]}"
    syncs() { fio --name=x --directory="$MNT/tank" --rw=randwrite --bs=4k --size=16M --fsync=1 --runtime=5 --time_based --minimal | awk -F';' '{ print $49 }'; }
    local without with
    without=$(syncs)
    zpool add -f tank log "${DISKS[1]}"
    with=$(syncs)
    echo "log: writes of 4 KiB with fsync a second: $with with a log device in memory, $without without"
    unlimit "${DISKS[0]}"
}

for part in ${*:-mirror rebuild raidz missed foreground log}; do "$part"; done
