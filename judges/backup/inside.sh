#!/bin/bash
# One program's tests, in a mount namespace of its own (run.sh makes it): inside.sh PROGRAM [TEST...]. Each test's line
# goes to results.tsv, everything else to PROGRAM.log.
set -uo pipefail

HERE=$(cd "$(dirname "$0")" && pwd)
PROGRAM=$1
shift
export PATH=$WORK/bin:$WORK/root/usr/sbin:$WORK/root/usr/bin:$PATH:/usr/sbin:/sbin
export PLATTER_HOME=$WORK/home/daemon PERL5LIB=$WORK/root/usr/share/perl5 LC_ALL=C.UTF-8
HOME=$(getent passwd root | cut -d: -f6)
export HOME

# Copies of others' mounts would keep those busy.
awk '$3 ~ /^fuse/ || $1 ~ /^.dev.loop/ { print $2 }' /proc/mounts | xargs -r umount -l
mount --bind "$WORK/home" "$WORK/home"
mkdir -p "$HOME/.ssh" /run/sshd
mount -t tmpfs -o mode=700 tmpfs "$HOME/.ssh"
cp "$WORK/key" "$HOME/.ssh/id_rsa"
cp "$WORK/key.pub" "$WORK/authorized_keys"
# sanoid reads its defaults from there only.
mount -t overlay -o "lowerdir=$WORK/root/usr/share:/usr/share" overlay /usr/share
cat > "$WORK/sshd_config" <<CONFIG
Port $BACKUP_PORT
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
ListenAddress ::1
HostKey $WORK/host
AuthorizedKeysFile $WORK/authorized_keys
PidFile $WORK/sshd.pid
StrictModes no
PermitRootLogin yes
UsePAM no
MaxStartups 100
MaxSessions 100
SetEnv PATH=$PATH PLATTER_HOME=$PLATTER_HOME
CONFIG
printf 'Host localhost 127.0.0.1 127.0.0.2 ::1\n    Port %s\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n    LogLevel ERROR\n' \
    "$BACKUP_PORT" > "$HOME/.ssh/config"
/usr/sbin/sshd -f "$WORK/sshd_config" -E "$WORK/sshd.log"

leave() {
    local pool
    for pool in $(zpool list -H -o name 2>/dev/null); do timeout 60 zpool destroy -f "$pool"; done
    timeout 60 platter daemon stop >/dev/null 2>&1
    kill "$(cat "$WORK/sshd.pid")" 2>/dev/null
    rm -rf "$WORK/home/daemon" "$WORK"/disks/*
}
trap leave EXIT
rm -rf "$WORK/home/daemon" "$WORK"/disks/*
# As at boot: a command that starts it says so, and zrepl compares what is said.
platter daemon start >/dev/null

result() { printf '%s\t%s\t%s\n' "$PROGRAM" "$1" "$2" >> "$WORK/results.tsv"; }

# Go's test programs say "--- PASS: name (0.1s)".
go_results() {
    sed -unE 's/^ *--- (PASS|FAIL|SKIP): ([^ ]+) .*/\2 \L\1/p' | while read -r name what; do result "$name" "$what"; done
}

# zrepl says which it begins, and how that ended.
zrepl_results() {
    local line name=
    while read -r line; do
        case $line in
        *'BEGIN TEST CASE '*) name=${line##*tests.} ;;
        *'TEST PASSED'*) result "$name" pass ;;
        *'TEST FAILED'*) result "$name" fail ;;
        *'TEST SKIPPED'*) result "$name" skip ;;
        esac
    done
}

# As a regular expression that finds these names alone.
one_of() { local IFS='|'; [ $# -eq 0 ] || printf '(^|[.])(%s)$' "$*"; }

main() {
    case $PROGRAM in
    go-zfs) (cd "$WORK/go-zfs" && timeout 600 go-zfs -test.v -test.run "$(one_of "$@")") 2>&1 | tee "$LOG" | go_results ;;
    zrepl)
        timeout 1200 zrepl-platformtest -poolname zreplplatformtest -imagepath "$WORK/disks/zrepl" \
            -mountpoint "$WORK/home/zrepl" -run "$(one_of "$@")" 2>&1 | tee "$LOG" |
            zrepl_results
        ;;
    bzfs)
        bzfs_test_ssh_port=$BACKUP_PORT bzfs_test_mode=functional PYTHONPATH=$WORK/bzfs \
            timeout 3000 python3 -u "$HERE/bzfs.py" "$@" 2>&1 | tee "$LOG" |
            sed -unE 's/^RESULT ([a-z]+) (.*)$/\2 \1/p' | while read -r name what; do result "$name" "$what"; done
        ;;
    *)
        # shellcheck source=judges/backup/scripts.sh
        . "$HERE/scripts.sh"
        run_scripts "$@" > "$LOG" 2>&1
        ;;
    esac
}

LOG=$WORK/$PROGRAM.log
main "$@"
