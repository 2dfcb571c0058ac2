#!/bin/bash
# DATASET [BYTES]: a new file system. With a size its pool is made anew, with about that much room.
dataset=$1 bytes=${2:-0} pool=${1%%/*}
umount "$dataset" 2>/dev/null
have=$(cat "$DISKS/$pool.size" 2>/dev/null || echo none)
if [ "$have" = "$bytes" ] && zpool list "$pool" >/dev/null 2>&1; then
    zfs destroy -r "$dataset" || exit 1
else
    zpool destroy "$pool" 2>/dev/null
    rm -f "$DISKS/$pool".[012]
    each=$((8 << 30))
    if [ "$bytes" != 0 ]; then
        # Two disks' worth of raidz1 hold it, the reserve (1/32, 128 MiB at least) and the labels.
        slop=$((bytes / 31 > 128 << 20 ? bytes / 31 : 128 << 20))
        each=$(((bytes + bytes / 50 + slop + (24 << 20)) / 2 >> 20 << 20))
    fi
    truncate -s "$each" "$DISKS/$pool".{0,1,2}
    zpool create -f -O acltype=posix -O xattr=sa -O compression=off -m none \
        "$pool" raidz "$DISKS/$pool".{0,1,2} || exit 1
    echo "$bytes" >"$DISKS/$pool.size"
fi
zfs create -u -o mountpoint="$SCRATCH_MNT" "$dataset" || exit 1
# Destroying a data set takes its empty mount point away.
mkdir -p "$SCRATCH_MNT"
