#!/bin/bash
# What resilvers cost next to what the disks can do, and a log device next to none: one figure a line.
#
#   bench/resilver.sh [PART...]      mirror rebuild raidz missed foreground log; all of them by default
#
# The disks are files of a tmpfs. Pools are filled there, and then imported through `platter-bench platters`, which makes
# each file as slow as a drive of its size with 5400 rotations a minute: seeks, rotations, 110 MB/s at its outer edge and
# 55 MB/s at its inner one, no write cache. fio measures the same drives. Needs root and fio.
# BINARY, BENCH: the builds of Platter and of its bench, default target/release/platter and platter-bench.
set -euo pipefail
cd "$(dirname "$0")/.."
BINARY=${BINARY:-target/release/platter} BENCH=${BENCH:-target/release/platter-bench}
[ -x "$BINARY" ] && [ -x "$BENCH" ] || { echo "no $BINARY or $BENCH: cargo build --release --workspace --bins" >&2; exit 1; }
FOLDER=$(mktemp -d)
mount -t tmpfs -o size=14G tmpfs "$FOLDER"
mkdir -p "$FOLDER"/{bin,home,files,drives,mnt}
export PLATTER_HOME=$FOLDER/home PATH=$FOLDER/bin:$PATH
cp "$BINARY" "$FOLDER/bin/platter"
cp "$BENCH" "$FOLDER/bin/platter-bench"
ln -s platter "$FOLDER/bin/zfs"
ln -s platter "$FOLDER/bin/zpool"
FILES=$FOLDER/files DRIVES=$FOLDER/drives MNT=$FOLDER/mnt
forget_disks() {
    for pool in $(zpool list -H -o name 2>/dev/null); do zpool destroy -f "$pool"; done
    if mountpoint -q "$DRIVES"; then umount "$DRIVES"; fi
    rm -f "$FILES"/*
}
leave() {
    forget_disks || true
    platter daemon stop >/dev/null 2>&1 || true
    umount -l "$DRIVES" 2>/dev/null || true
    umount -l "$FOLDER"
    rmdir "$FOLDER"
}
trap leave EXIT
platter daemon start >/dev/null

now() { date +%s.%N; }
calculate() { awk "BEGIN { printf \"%.${2:-2}f\", $1 }"; }
timed() { local begin end; begin=$(now); "$@" >/dev/null; end=$(now); calculate "$end - $begin" 3; }
# COUNT disks of SIZE, as fast as they can be.
disks() {
    forget_disks
    local number
    for number in $(seq "$1"); do truncate -s "$2" "$FILES/$number"; done
}
# From now on they are drives.
drives() {
    local number
    platter-bench platters "$FILES" "$DRIVES" &
    for number in $(seq 100); do mountpoint -q "$DRIVES" && return; sleep 0.1; done
    return 1
}
# The pool, too.
onto_drives() {
    zpool export tank
    drives
    zpool import -d "$DRIVES" tank
}
# WAY SIZE DRIVE: MB/s of reading or writing the first SIZE of a drive from one end to the other.
fio_rate() {
    fio --name=x --filename="$3" --rw="$1" --bs=1M --direct=1 --ioengine=io_uring --iodepth=8 --size="$2" --minimal |
        awk -F';' -v column="$([ "$1" = read ] && echo 7 || echo 48)" '{ print $column / 1000 * 1.024 }'
}
# Files of MEGABYTES in pieces of 128 KiB in any order, a part of them written anew twice: an aged pool.
fill() {
    python3 - "$MNT/tank" "$1" <<'PYTHON'
import os, random, sys
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
    local what=$1 layout=$2 last=$3 share=$4 option=${5:-} took slower read written
    disks "$last" 2G
    zpool create -f -o ashift=12 -O mountpoint="$MNT/tank" -O atime=off -O recordsize=128k tank $layout \
        $(seq -f "$FILES/%g" $((last - 1)))
    fill "$(calculate "1000 / $share" 0)"
    onto_drives
    written=$(fio_rate write 1G "$DRIVES/$last") read=$(fio_rate read 1G "$DRIVES/2")
    slower=$(printf '%s\n' "$written" "$read" | sort -g | head -1)
    took=$(timed bash -c "zpool replace $option tank $DRIVES/1 $DRIVES/$last && zpool wait -t resilver tank")
    zpool status tank | grep -E "resilvered|errors:" >&2
    echo "$what: $(calculate "$(allocated) * $share / 1e6" 0) MB in $took s, of what fio reads or writes ($(calculate "$slower" 0) MB/s): $(calculate "$(allocated) * $share / 1e6 / $took / $slower")"
}
mirror() { replaced "mirror: resilver of half a disk, aged" mirror 3 1; }
rebuild() { replaced "rebuild: sequential reconstruction of the same" mirror 3 1 -s; }
raidz() { replaced "raidz: resilver of a disk of seven, half full, aged" raidz 8 "1 / 7"; }

# A disk of a mirror of 1 TiB misses 1 GiB.
missed() {
    disks 2 1T
    zpool create -f -o ashift=12 -O mountpoint="$MNT/tank" tank mirror "$FILES/1" "$FILES/2"
    fill 2000
    zpool offline tank "$FILES/2"
    head -c 1G /dev/urandom > "$MNT/tank/missed"
    zpool sync
    onto_drives
    zpool online tank "$DRIVES/2"
    echo "missed: 1 GiB of a mirror of 1 TiB in $(timed zpool wait -t resilver tank) s: $(zpool status tank | grep scan:)"
}

# Reading files at random while a disk is resilvered, and before.
foreground() {
    disks 3 2G
    zpool create -f -o ashift=12 -O mountpoint="$MNT/tank" -O primarycache=metadata -O atime=off tank mirror "$FILES/1" "$FILES/2"
    fill 1000
    onto_drives
    reads() { fio --name=x --directory="$MNT/tank" --filename=0:1:2:3 --rw=randread --bs=128k --size=40M --runtime=10 --time_based --minimal | awk -F';' '{ print $7 / 1000 * 1.024 }'; }
    local before during
    before=$(reads)
    zpool replace tank "$DRIVES/1" "$DRIVES/3"
    during=$(reads)
    zpool status tank | grep -q "resilver in progress" || echo "foreground: the resilver ended before the reader did" >&2
    echo "foreground: random reads of 128 KiB during a resilver, of before ($(calculate "$before" 1) MB/s): $(calculate "$during / $before")"
}

# Writes of 4 KiB, each made stable, with a log device in memory and without.
log() {
    disks 1 1G
    truncate -s 1G "$FOLDER/log"
    zpool create -f -o ashift=12 -O mountpoint="$MNT/tank" tank "$FILES/1"
    onto_drives
    syncs() { fio --name=x --directory="$MNT/tank" --rw=randwrite --bs=4k --size=16M --fsync=1 --runtime=5 --time_based --minimal | awk -F';' '{ print $49 }'; }
    local without with
    without=$(syncs)
    zpool add -f tank log "$FOLDER/log"
    with=$(syncs)
    echo "log: writes of 4 KiB with fsync a second: $with with a log device in memory, $without without"
}

for part in ${*:-mirror rebuild raidz missed foreground log}; do "$part"; done
