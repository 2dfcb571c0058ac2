#!/bin/bash
# What resilvers cost next to what the disks can do, and a log device next to none: one figure a line.
#
#   bench/resilver.sh [PART...]      mirror rebuild raidz missed foreground log; all of them by default
#
# The disks are files of a tmpfs. Pools are filled there, and then imported through `platter-bench platters`, which makes
# each file as slow as a drive of its size with 5400 rotations a minute: seeks, rotations, 110 MB/s at its outer edge and
# 55 MB/s at its inner one. What a resilver wrote to the new drive, fio then writes to another one, at the same places from
# the beginning to the end, and reads from one that was there: that is what the drives can do. Needs root and fio.
# BINARY, BENCH: the builds of Platter and of its bench, default target/release/platter and platter-bench.
set -euo pipefail
cd "$(dirname "$0")/.."
BINARY=${BINARY:-target/release/platter} BENCH=${BENCH:-target/release/platter-bench}
[ -x "$BINARY" ] && [ -x "$BENCH" ] || { echo "no $BINARY or $BENCH: cargo build --release --workspace --bins" >&2; exit 1; }
FOLDER=$(mktemp -d)
mount -t tmpfs -o size=19G tmpfs "$FOLDER"
mkdir -p "$FOLDER"/{bin,home,files,drives,mnt}
export PLATTER_HOME=$FOLDER/home PATH=$FOLDER/bin:$PATH
cp "$BINARY" "$FOLDER/bin/platter"
cp "$BENCH" "$FOLDER/bin/platter-bench"
ln -s platter "$FOLDER/bin/zfs"
ln -s platter "$FOLDER/bin/zpool"
FILES=$FOLDER/files DRIVES=$FOLDER/drives MNT=$FOLDER/mnt
forget_disks() {
    for pool in $(zpool list -H -o name 2>/dev/null); do zpool destroy -f "$pool"; done
    # The kernel may still be at closing them.
    if mountpoint -q "$DRIVES"; then umount -l "$DRIVES"; fi
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
# WAY FILE DRIVE: seconds that fio needs to read or write on DRIVE all that FILE holds, in order.
replay() {
    python3 - "$1" "$2" "$3" > "$FOLDER/log" <<'PYTHON'
import os, sys
way, path, drive = sys.argv[1:]
print("fio version 2 iolog", f"{drive} add", f"{drive} open", sep="\n")
file, place = os.open(path, os.O_RDONLY), 4 << 20
end = os.fstat(file).st_size - (512 << 10)
while place < end:
    try:
        place = os.lseek(file, place, os.SEEK_DATA)
    except OSError:
        break
    hole = min(os.lseek(file, place, os.SEEK_HOLE), end)
    while place < hole:
        length = min(hole - place, 1 << 20)
        print(drive, way, place, length)
        place += length
print(f"{drive} close")
PYTHON
    fio --name=x --read_iolog="$FOLDER/log" --replay_no_stall=1 --direct=1 --ioengine=io_uring --iodepth=8 --end_fsync=1 --output-format=json |
        python3 -c "import json, sys; job = json.load(sys.stdin)['jobs'][0]; print(max(job[way]['runtime'] for way in ('read', 'write')) / 1000)"
}
# Files of MEGABYTES in pieces of 128 KiB in any order, a part of them written anew twice: an aged pool. What is freed
# leaves memory now and then, so that larger drives fit into it.
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
        if number % 4000 == 3999:
            subprocess.run("zpool sync && zpool trim -w tank", shell=True, check=True)
PYTHON
    zpool sync
}
# WHAT LAYOUT DISKS SIZE MEGABYTES OPTION: the last of DISKS takes the place of the first, in a pool of MEGABYTES.
replaced() {
    local what=$1 layout=$2 last=$3 size=$4 megabytes=$5 option=${6:-} took scan held reads writes
    disks "$last" "$size"
    zpool create -f -o ashift=12 -O mountpoint="$MNT/tank" -O atime=off -O recordsize=128k tank $layout \
        $(seq -f "$FILES/%g" $((last - 1)))
    fill "$megabytes"
    onto_drives
    took=$(timed bash -c "zpool replace $option tank $DRIVES/1 $DRIVES/$last && zpool wait -t resilver tank")
    scan=$(zpool status tank | grep resilvered)
    zpool export tank
    held=$(du -m "$FILES/$last" | cut -f1)
    reads=$(replay read "$FILES/$last" "$DRIVES/2") writes=$(replay write "$FILES/$last" "$DRIVES/1")
    echo "$what: $held MB in $took s, where fio reads them in $reads s and writes them in $writes s: $(calculate "($reads > $writes ? $reads : $writes) / $took") ($scan)"
}
mirror() { replaced "mirror: resilver of half a disk, aged" mirror 3 6G 2900; }
rebuild() { replaced "rebuild: sequential reconstruction of the same" mirror 3 6G 2900 -s; }
raidz() { replaced "raidz: resilver of a disk of seven, half full, aged" raidz 8 3100M 9000; }

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
