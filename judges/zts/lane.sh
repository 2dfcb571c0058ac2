#!/bin/bash
# One lane of run.sh: takes groups from the queue until none is left. Three stages of one script:
#   lane.sh NUMBER          on the machine: loop devices, then namespaces for mounts and processes
#   lane.sh NUMBER inside   there: a root that is an overlay of the machine's, with /dev, /tmp and PLATTER_HOME of its own
#   lane.sh NUMBER tests    in that root: the tests
# Appends to results.tsv: group, test, result, seconds, what was passed over.
#   pass; part: passed but for steps that Platter says it does not have yet; fail; skip: the suite says it cannot be run;
#   hang: not done in time; died: the daemon ended.
# What it makes goes with the namespaces; the loop devices are detached at the end.
set -u
NUMBER=$1 STAGE=${2:-machine}
DISKS_EACH=3 DISK_SIZE=4G

fail() { printf 'lane %s: %s\n' "$NUMBER" "$*" >&2; exit 1; }

# --- on the machine

# Ten numbers of loop devices that no other lane of this machine uses: their lock is held as long as the lane lives.
claim_loops() {
    local base
    mkdir -p /run/lock/platter-zts
    for base in $(seq 200 10 990); do
        exec {CLAIM}> /run/lock/platter-zts/$base
        if flock -n "$CLAIM" && ! compgen -G "/sys/block/loop${base%0}[0-9]/loop/backing_file" >/dev/null; then
            LOOPS=$base
            return
        fi
        exec {CLAIM}>&-
    done
    fail "no loop devices are free"
}

detach_loops() {
    local device
    for device in /sys/block/loop"${LOOPS%0}"[0-9]/loop/backing_file; do
        [ ! -e "$device" ] || { device=${device#/sys/block/}; losetup -d "/dev/${device%%/*}"; }
    done
}

machine() {
    local lane=$ZTS_WORK/lane$NUMBER disk
    claim_loops
    trap detach_loops EXIT
    trap 'kill -9 $CHILD; exit 143' INT TERM
    rm -rf "$lane"
    mkdir -p "$lane"/{overlay,root,tmp,files,tunables,notes,home,disks}
    chmod 1777 "$lane"/{tmp,files,tunables,notes}
    for disk in $(seq 0 $((DISKS_EACH - 1))); do
        truncate -s $DISK_SIZE "$lane/disks/$disk"
        losetup -P "/dev/loop$((LOOPS + disk))" "$lane/disks/$disk" || fail "losetup"
    done
    # The claim goes to no child: a process that outlives the lane must not keep it.
    ZTS_LOOPS=$LOOPS unshare --mount --pid --fork --kill-child --propagation private \
        bash "$0" "$NUMBER" inside {CLAIM}>&- &
    CHILD=$!
    wait $CHILD || exit
    rm -rf "$lane"
}

# --- in the namespaces

inside() {
    local lane=$ZTS_WORK/lane$NUMBER root=$ZTS_WORK/lane$NUMBER/root node i
    mount -t tmpfs -o size=4g tmpfs "$lane/overlay" && mkdir "$lane"/overlay/{upper,work} &&
        mount -t overlay -o "lowerdir=/,upperdir=$lane/overlay/upper,workdir=$lane/overlay/work" overlay "$root" ||
        fail "no overlay"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --bind "$lane/tmp" "$root/tmp"
    # Only this lane's loop devices: `zpool import` looks through all of /dev.
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    mkdir "$root"/dev/{pts,shm}
    mount -t devpts -o ptmxmode=0666,newinstance devpts "$root/dev/pts"
    mount -t tmpfs tmpfs "$root/dev/shm"
    for node in null zero full random urandom tty console fuse loop-control kmsg; do
        [ ! -e /dev/$node ] || cp -a /dev/$node "$root/dev/"
    done
    for i in 0 1 2 3 4 5 6 7 8 9; do mknod "$root/dev/loop$((ZTS_LOOPS + i))" b 7 $((ZTS_LOOPS + i)); done
    ln -s pts/ptmx "$root/dev/ptmx"
    # Volumes are files of the daemon's own mount.
    ln -s "/zts/lane$NUMBER/home/volumes" "$root/dev/zvol"
    ln -s /proc/self/fd "$root/dev/fd"
    for i in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${i%:*}" "$root/dev/${i#*:}"; done
    # The work folder as /zts. What a test must not change is read-only.
    mkdir -p "$root/zts"
    mount --bind "$ZTS_WORK" "$root/zts"
    # What is behind the loop devices, where the kernel says that it is: Platter writes to no device without a look at it.
    mount --bind "$lane/disks" "$root$lane/disks"
    for i in bin suite path harness; do
        mount --bind "$ZTS_WORK/$i" "$root/zts/$i" && mount -o remount,ro,bind "$root/zts/$i"
    done
    # Programs of the suite call these by their whole name.
    for i in zpool zfs mount.zfs; do ln -sf /zts/bin/platter "$root/usr/sbin/$i"; done
    rm -f "$root/etc/zfs/zpool.cache" "$root/etc/hostid"
    # No chroot: in one, nobody may make user namespaces.
    mkdir -p "$root/machine"
    cd "$root" && pivot_root . machine && umount -l /machine || fail "no root of its own"
    exec bash /zts/harness/lane.sh "$NUMBER" tests
}

# --- the tests

environment() {
    export ZTS_LANE=/zts/lane$NUMBER PLATTER_HOME=/zts/lane$NUMBER/home
    export STF_SUITE=/zts/suite/zfs-tests STF_TOOLS=/zts/suite/test-runner STF_PATH=/zts/path ZTS_DIR=/zts/suite
    export FILEDIR=$ZTS_LANE/files TMPDIR=$ZTS_LANE/files
    export ZFS=/zts/path/zfs ZPOOL=/zts/path/zpool ZDB=/zts/path/zdb ZTEST=/usr/sbin/ztest
    export BIN_DIR=/usr/bin SBIN_DIR=/sbin LIBEXEC_DIR=/usr/lib/zfs-linux
    export UNAME=Linux SHELL=/bin/sh HOME=/root LC_ALL=C LANG=C NFS='' KEEP=rpool __ZFS_POOL_EXCLUDE=rpool
    export DISKS="loop$ZTS_LOOPS loop$((ZTS_LOOPS + 1)) loop$((ZTS_LOOPS + 2))"
    export PATH=/zts/bin:/usr/sbin:/usr/bin:/sbin:/bin
    set +u
    # shellcheck source=/dev/null
    . "$STF_SUITE/include/default.cfg"
    set -u
    # The suite is meant to be started by such a user; its own users join the group of the commands, so not root's.
    useradd -m ordinary && chown -h :ordinary /zts/lane"$NUMBER"/notes || fail "no user"
    mkdir /zts-path
    cp -a /zts/path/. /zts-path/
    chown -h :ordinary /zts-path/*
    mount --bind /zts-path /zts/path
    cp -a /etc /etc-at-start
}

# What devtmpfs does on a machine: nodes of partitions come and go. No process is started for a look.
partition_nodes() {
    local entry node number
    local -A made
    while sleep 0.2; do
        for entry in /sys/block/loop"${ZTS_LOOPS%0}"[0-9]/loop*p*/dev; do
            node=${entry%/dev} node=${node##*/}
            read -r number 2>/dev/null < "$entry" || continue
            [ -e "/dev/$node" ] && [ "$number" = "${made[$node]:-}" ] && continue
            rm -f "/dev/$node"
            mknod "/dev/$node" b "${number%:*}" "${number#*:}" && made[$node]=$number
        done
        for node in /dev/loop*p*; do
            [ -e "/sys/class/block/${node##*/}" ] || [ ! -e "$node" ] || rm -f "$node"
        done
    done
}

daemon_process() { timeout 20 platter daemon status 2>/dev/null | sed -n 's/.*process \([0-9]*\).*/\1/p' | head -1; }

# Everything as at the beginning: no process, no mount, no pool, empty disks, a new daemon.
reset() {
    local place disk
    timeout 60 platter daemon stop >/dev/null 2>&1
    # All but this shell, the first process here.
    kill -9 -1 2>/dev/null
    awk -v files="$FILEDIR/" '$3 ~ /^fuse/ || index($2, files) == 1 { print $2 }' /proc/self/mounts | tac |
        while read -r place; do umount -l "$(printf '%b' "$place")" 2>/dev/null; done
    for disk in $(seq $((ZTS_LOOPS + DISKS_EACH)) $((ZTS_LOOPS + 9))); do
        [ ! -e "/sys/block/loop$disk/loop/backing_file" ] || losetup -d "/dev/loop$disk"
    done
    for disk in $DISKS; do
        blkdiscard -f "/dev/$disk" 2>/dev/null || dd if=/dev/zero "of=/dev/$disk" bs=1M status=none
        blockdev --rereadpt "/dev/$disk" 2>/dev/null
    done
    rm -rf "${FILEDIR:?}"/* "${PLATTER_HOME:?}" "$ZTS_LANE"/{tunables,notes}/* /testpool* /testdir*
    # Users and groups, mount tables, host identities.
    rsync -a --delete /etc-at-start/ /etc/
    mkdir -p "$PLATTER_HOME"
    partition_nodes 2>/dev/null &
    disown
    platter daemon start >/dev/null 2>&1
}

# Runs one script of a group and writes down what became of it. Sets RESULT.
run_script() { # GROUP TEST USER
    local folder=$STF_SUITE/tests/functional/$1 log=/zts/logs/$1/$2.log started=$SECONDS before after code over command
    mkdir -p "${log%/*}"
    command=(env PATH="$STF_PATH")
    [ "$3" = root ] ||
        command=(setpriv --reuid=ordinary --regid=ordinary --init-groups env PATH="$STF_PATH" HOME=/home/ordinary)
    if [ -f "$folder/$2.ksh" ]; then command+=(ksh "$folder/$2.ksh"); else command+=("$folder/$2"); fi
    before=$(daemon_process)
    (cd "$folder" && exec setsid -w timeout -k 5 "$ZTS_LIMIT" "${command[@]}") > "$log" 2>&1 < /dev/null
    code=$?
    after=$(daemon_process)
    over=$(sed -n 's/.*PASSED OVER: .* :: //p' "$log" | head -1)
    case $code in
    0) RESULT=pass; [ -z "$over" ] || RESULT=part ;;
    4 | 5) RESULT=skip ;;
    124 | 137) RESULT=hang ;;
    *) RESULT=fail ;;
    esac
    [ -z "$before" ] || [ "$before" = "$after" ] || RESULT=died
    [ "$RESULT" = pass ] || sed 's/\x1b\[[0-9;]*m//g' "$PLATTER_HOME/daemon.log" 2>/dev/null | tail -30 | sed 's/^/daemon: /' >> "$log"
    case $2:$RESULT in setup:pass | setup:part | cleanup:*) return ;; esac
    printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$RESULT" $((SECONDS - started)) "${over:0:200}" >> /zts/results.tsv
}

begin_group() {
    reset
    [ ! -f "$STF_SUITE/tests/functional/$1/setup.ksh" ] || run_script "$1" setup root
}

tests() {
    local group names name user
    environment
    while IFS=$'\t' read -r group names < <(flock /zts/queue sh -c 'head -1 /zts/queue; sed -i 1d /zts/queue') && [ -n "$group" ]; do
        RESULT=begin
        for name in $names; do
            # What went wrong is in the way of no other test.
            case $RESULT in pass | part) ;; *) begin_group "$group" ;; esac
            user=$(awk -F'\t' -v group="$group" -v name="$name" '$1 == group && $2 == name { print $3 }' /zts/tests.tsv)
            run_script "$group" "$name" "$user"
        done
        # That a group can be cleaned up shows that its pools can be destroyed.
        case $RESULT in pass) [ ! -f "$STF_SUITE/tests/functional/$group/cleanup.ksh" ] || run_script "$group" cleanup root ;; esac
    done
    timeout 60 platter daemon stop >/dev/null 2>&1
}

case $STAGE in
machine) machine ;;
inside) inside ;;
tests) tests ;;
esac
