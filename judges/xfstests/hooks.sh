# Read by xfstests at the end of its common/rc: what it cannot know of Platter, in place of its own functions.

# A data set of its own, in a pool that has about as much room as a test asks for.
_scratch_mkfs() { platter-mkfs "$SCRATCH_DEV"; }
_try_scratch_mkfs_sized() { platter-mkfs "$SCRATCH_DEV" "$1"; }

# The kernel calls it fuse.zfs.
_fs_type() { awk -v device="$1" '$1 == device { sub(/^fuse\..*/, "fuse", $3); print $3; exit }' /proc/self/mounts; }

# zdb is the judge.
_check_dev_fs() {
    if ! platter-fsck "$1" >"$tmp.fsck" 2>&1; then
        _log_err "zdb does not like the pool of $1"
        cat "$tmp.fsck" >>"$seqres.full"
        return 1
    fi
}

# A test that hangs is ended, with all that uses the mounts.
platter_timed() {
    local result=0 place
    timeout -k 15 "$SECONDS_EACH" "$@" || result=$?
    if [ $result -eq 124 ] || [ $result -eq 137 ]; then
        echo "ended after $SECONDS_EACH s"
        for place in "$TEST_DIR" "$SCRATCH_MNT"; do
            if mountpoint -q "$place"; then fuser -k -9 -m "$place" >/dev/null 2>&1; fi
        done
        sleep 1
    fi
    return $result
}

# The kernel's messages are about all that runs on the machine.
_check_dmesg() { return 0; }
