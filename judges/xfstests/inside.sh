#!/bin/bash
# The part of run.sh that runs in its own name spaces; the arguments are `check`'s.
set -u
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir "$INSIDE"; mount --bind "$WORK" "$INSIDE"
# xfstests names its files in /tmp by process ids, which are the same in other name spaces.
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount --bind "$INSIDE/passwd" /etc/passwd
mount --bind "$INSIDE/group" /etc/group
# mount(8) looks for mount.fuse.zfs and then for mount.fuse.
mount --bind "$INSIDE/bin/platter-mount" "$(readlink -f /sbin/mount.fuse)"
ulimit -c 0
export PATH=$INSIDE/bin:/usr/sbin:/sbin:/usr/bin:/bin PLATTER_HOME=$INSIDE/home DISKS=$INSIDE/disks
export FSTYP=fuse FUSE_SUBTYP=.zfs TEST_DEV=testpool/test TEST_DIR=$INSIDE/test SCRATCH_DEV=spool/fs
export SCRATCH_MNT=$INSIDE/scratch RESULT_BASE=$INSIDE/results HOST_OPTIONS=$INSIDE/local.config SECONDS_EACH
for name in FSTYP FUSE_SUBTYP TEST_DEV TEST_DIR SCRATCH_DEV SCRATCH_MNT RESULT_BASE; do
    echo "export $name=${!name}"
done >"$HOST_OPTIONS"

platter daemon start || exit 1
truncate -s 6G "$DISKS"/d{0,1,2,3}
zpool create -f -O acltype=posix -O xattr=sa -m none testpool raidz "$DISKS"/d{0,1,2,3} || exit 1
zfs create -u -o mountpoint="$TEST_DIR" testpool/test || exit 1
mkdir -p "$TEST_DIR"
platter-mkfs "$SCRATCH_DEV" || exit 1

cd "$INSIDE/$SUITE" || exit 1
./check -R xunit "$@"
umount "$TEST_DIR" "$SCRATCH_MNT" 2>/dev/null

# In the end both pools are as zdb and a scrub want them.
result=0
for pool in testpool spool; do
    zpool scrub -w $pool
    zpool status $pool | grep -q 'errors: No known data errors' || { zpool status -v $pool; result=1; }
    for _ in 1 2 3; do zpool export $pool && break; sleep 1; done
    if ! /usr/sbin/zdb -e -p "$DISKS" -bcc $pool >"$RESULT_BASE/zdb.$pool" 2>&1; then
        echo "zdb does not like $pool in the end; see results/zdb.$pool"; result=1
    fi
done
platter daemon stop
exit $result
