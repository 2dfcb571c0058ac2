# Cases of ours for the scripts of Debian: each a function that ends with 1 when something is not as it should be.
# shellcheck shell=bash

# Two pools with a small tree in the first.
two_pools() {
    local pool
    for pool in $(zpool list -H -o name); do zpool destroy -f "$pool"; done
    rm -rf "${WORK:?}/disks"/* "$WORK/home"/{src,dst,run,cache,etc}
    truncate -s 512M "$WORK/disks/src" "$WORK/disks/dst"
    zpool create -O mountpoint="$WORK/home/src" src "$WORK/disks/src"
    zpool create -O mountpoint="$WORK/home/dst" dst "$WORK/disks/dst"
    zfs create src/data
    zfs create src/data/child
    zfs create -s -V 16M src/data/volume
    seq 1 100000 > "$WORK/home/src/data/numbers"
    seq 1 1000 > "$WORK/home/src/data/child/few"
}

snapshots() { zfs list -H -o name -t snapshot -r "$1"; }

# What is in two file systems is the same.
same() { diff -r --exclude=.zfs "$1" "$2"; }

sanoid_here() {
    sanoid --configdir="$WORK/home/etc" --run-dir="$WORK/home/run" --cache-dir="$WORK/home/cache" "$@"
}

sanoid_configured() {
    mkdir -p "$WORK/home/etc"
    cp "$WORK/root/usr/share/sanoid/sanoid.defaults.conf" "$WORK/home/etc/"
    printf '[src/data]\n  use_template = t\n  recursive = %s\n[template_t]\n' "${1:-yes}" > "$WORK/home/etc/sanoid.conf"
    printf '  %s\n' 'hourly = 2' 'daily = 3' 'monthly = 1' 'yearly = 0' 'autosnap = yes' 'autoprune = yes' >> "$WORK/home/etc/sanoid.conf"
}

sanoid_takes() {
    two_pools && sanoid_configured && sanoid_here --cron --verbose || return 1
    local dataset kind
    for dataset in src/data src/data/child src/data/volume; do
        for kind in hourly daily monthly; do snapshots $dataset | grep -c "^$dataset@autosnap_.*_$kind$" > /dev/null || return 1; done
    done
}

# Of `recursive = zfs` all have one name and one group.
sanoid_takes_at_once() {
    two_pools && sanoid_configured zfs && sanoid_here --take-snapshots --verbose || return 1
    [ "$(zfs list -H -o createtxg -t snapshot -r src/data | grep -c .)" -eq 9 ] &&
        [ "$(zfs list -H -o name,createtxg -t snapshot -r src/data | grep _daily | cut -f2 | sort -u | grep -c .)" -eq 1 ]
}

# What is too many and old enough goes; what is not its own stays.
sanoid_prunes() {
    two_pools && sanoid_configured || return 1
    local day
    for day in 01 02 03 04 05 06; do zfs snapshot "src/data@autosnap_2020-01-${day}_00:00:01_daily" || return 1; done
    zfs snapshot src/data@mine
    sanoid_here --cron --verbose && sanoid_here --force-update --prune-snapshots --verbose || return 1
    snapshots src/data | grep -c '^src/data@mine$' > /dev/null
}

sanoid_monitors() {
    sanoid_takes && sanoid_here --monitor-snapshots && sanoid_here --monitor-health && sanoid_here --monitor-capacity
}

# The first copy, then what changed.
syncoid_follows() {
    two_pools && syncoid "$@" src/data "${TO:-}dst/data" || return 1
    same "$WORK/home/src/data" "$WORK/home/dst/data" || return 1
    seq 5 50000 > "$WORK/home/src/data/numbers"
    rm "$WORK/home/src/data/child/few"
    syncoid "$@" src/data "${TO:-}dst/data" && same "$WORK/home/src/data" "$WORK/home/dst/data"
}

syncoid_recursively() { syncoid_follows --recursive --compress=none; }
syncoid_through_ssh() { TO=root@localhost: syncoid_follows --recursive --compress=none --sshport="$BACKUP_PORT"; }

syncoid_with_bookmarks() {
    two_pools && zfs snapshot -r src/data@one && syncoid --no-sync-snap --create-bookmark src/data dst/data || return 1
    zfs list -H -t bookmark "src/data#one" && zfs destroy src/data@one && seq 7 > "$WORK/home/src/data/seven" || return 1
    zfs snapshot src/data@two && syncoid --no-sync-snap --create-bookmark src/data dst/data && [ -f "$WORK/home/dst/data/seven" ]
}

# A stream that is cut off goes on where it was.
syncoid_resumes() {
    two_pools && head -c 40M /dev/urandom > "$WORK/home/src/data/big" && zfs snapshot src/data@big || return 1
    zfs send src/data@big | head -c 20M | zfs receive -s dst/data
    [ "$(zfs get -H -o value receive_resume_token dst/data)" != - ] || return 1
    syncoid --no-sync-snap --debug src/data dst/data 2>&1 | tee -a /dev/stderr | grep -i resum > /dev/null || return 1
    cmp "$WORK/home/src/data/big" "$WORK/home/dst/data/big"
}

syncoid_a_volume() {
    two_pools && seq 1 100000 | platter volume write src/data/volume && syncoid src/data/volume dst/volume || return 1
    seq 3 90000 | platter volume write src/data/volume && syncoid src/data/volume dst/volume || return 1
    cmp <(platter volume cat src/data/volume) <(platter volume cat dst/volume)
}

# Who has a copy that went its own way is told, and loses nothing.
syncoid_refuses_what_diverged() {
    two_pools && syncoid src/data dst/data || return 1
    local name
    for name in $(snapshots src/data | grep '^src/data@'); do zfs destroy "$name" || return 1; done
    ! syncoid --no-sync-snap src/data dst/data && [ -f "$WORK/home/dst/data/numbers" ]
}

# The oldest of its own go, beyond so many.
auto_snapshot_keeps() {
    two_pools || return 1
    local day
    # It sorts by creation, which has whole seconds.
    for day in 01 02 03; do zfs snapshot -r "src@zfs-auto-snap_test-2020-01-$day-0000" && sleep 1.1 || return 1; done
    zfs snapshot -r src@mine && zfs-auto-snapshot --verbose --label=test --keep=2 -r src || return 1
    [ "$(snapshots src/data | grep -c '^src/data@zfs-auto-snap_test')" -eq 2 ] &&
        snapshots src/data | grep -c '^src/data@zfs-auto-snap_test-2020-01-03' > /dev/null && snapshots src/data | grep -c '^src/data@mine$' > /dev/null
}

auto_snapshot_leaves_out() {
    two_pools && zfs set com.sun:auto-snapshot=false src/data/child && zfs-auto-snapshot --verbose --label=test --keep=3 // || return 1
    ! snapshots src/data/child | grep -c . > /dev/null && snapshots src/data/volume | grep -c auto-snap > /dev/null
}

run_scripts() {
    local name prefix=${PROGRAM#zfs-}
    prefix=${prefix//-/_}
    for name in $(declare -F | sed -n "s/^declare -f \(${prefix}_.*\)/\1/p"); do
        case $name in sanoid_here | sanoid_configured | syncoid_follows) continue ;; esac
        [ $# -eq 0 ] || case " $* " in *" $name "*) ;; *) continue ;; esac
        printf '== %s\n' "$name"
        if (set -x && "$name"); then result "$name" pass; else result "$name" fail; fi
    done
}
