#!/bin/bash
# DATASET: exports its pool, has zdb walk and count all of it, and imports it again; what was mounted is mounted again.
dataset=$1 pool=${1%%/*} result=0
at=$(awk -v dataset="$dataset" '$1 == dataset && $3 == "fuse.zfs" { print $2; exit }' /proc/self/mounts)
[ -z "$at" ] || umount "$at" || { echo "$at cannot be unmounted"; exit 1; }
for _ in 1 2 3; do said=$(zpool export "$pool" 2>&1) && break; sleep 1; done
[ -z "$said" ] || { echo "export: $said"; exit 1; }
zdb=$(/usr/sbin/zdb -e -p "$DISKS" -bcc "$pool" 2>&1) || result=$?
zpool import -N -d "$DISKS" "$pool" || { echo "it cannot be imported"; exit 1; }
mkdir -p "$SCRATCH_MNT"
[ -z "$at" ] || mount -t fuse.zfs "$dataset" "$at" || { echo "it cannot be mounted again"; exit 1; }
if ! zpool status "$pool" | grep -q 'errors: No known data errors'; then zpool status -v "$pool"; exit 1; fi
if [ $result -ne 0 ] || ! grep -q 'No leaks' <<<"$zdb"; then
    echo "zdb ended with $result:"
    echo "$zdb" | head -40
    exit 1
fi
