#!/bin/bash
# Runs xfstests' generic tests (`-g auto`) on Platter's mounts and compares with what is expected of each.
#
#   XFSTESTS=ARCHIVE-OR-FOLDER judges/xfstests/run.sh          all of them, an hour or more
#   XFSTESTS=...               judges/xfstests/run.sh short    a fixed part, some minutes
#   XFSTESTS=...               judges/xfstests/run.sh generic/001 generic/013 ...
#
# None of xfstests is in this project: it is unpacked and built in target/xfstests, once. Everything runs in a mount and
# a pid name space of its own, with its own /tmp, users and PLATTER_HOME: nothing of it stays on the machine.
# Results that differ from expected.tsv are run again, alone; if they still do, they are printed and the run fails.
#
# PLATTER: the binary (target/debug/platter). SECONDS_EACH: longest time for one test (300).
set -euo pipefail
HERE=$(dirname "$(readlink -f "$0")")
ROOT=$(dirname "$(dirname "$HERE")")
WORK=$(realpath -m "${CARGO_TARGET_DIR:-$ROOT/target}/xfstests")
PLATTER=${PLATTER:-${CARGO_TARGET_DIR:-$ROOT/target}/debug/platter}
EXPECTED=$HERE/expected.tsv
# In the name space the work folder is here, wherever it is outside.
INSIDE=/mnt/xfstests

# Quick ones of many kinds: names, links, holes, mappings, direct and asynchronous I/O, attributes, lists, crashes.
SHORT="001 002 005 006 011 014 023 024 028 035 036 080 087 088 098 105 113 123 124 126 131 184 210 212 213 215 221 \
228 236 237 245 246 248 257 258 285 294 355 360 364 375 378 389 406 420 423 426 428 430 432 434 436 444 450 \
467 471 477 490 523 528 533 539 545 555 567 571 591 597 604 609 632 637 644 680 689 698 706 728 736"

die() { printf 'ERROR: %s\n' "$*" >&2; exit 2; }

# Unpacks and builds what XFSTESTS names, unless that is done; prints where.
prepare() {
    local source stamp
    source=${XFSTESTS:?a folder or an archive of xfstests}
    [ -e "$source" ] || die "there is no $source"
    if [ -d "$source" ]; then stamp=$(basename "$source"); else stamp=$(sha256sum "$source" | cut -c1-16); fi
    local place=$WORK/$stamp
    if [ ! -e "$place/platter-built" ]; then
        echo "building xfstests in $place" >&2
        rm -rf "$place"; mkdir -p "$place"
        if [ -d "$source" ]; then cp -a "$source/." "$place"; else tar -x -f "$source" -C "$place"; fi
        # An archive may have everything in one folder.
        local inner
        if [ ! -e "$place/check" ]; then
            inner=$(dirname "$(find "$place" -maxdepth 2 -name check -type f | head -1)")
            [ "$inner" != . ] || die "no xfstests in $source"
            mv "$inner" "$place.inner"; rm -rf "$place"; mv "$place.inner" "$place"
        fi
        if ! make -C "$place" -j"$(nproc)" >"$place.log" 2>&1; then
            tail -20 "$place.log" >&2
            die "xfstests does not build; see $place.log"
        fi
        # What it cannot know of this file system, and a limit for each test's time.
        echo ". $INSIDE/hooks.sh" >>"$place/common/rc"
        sed -i 's/^\t\t"${cmd\[@\]}"$/\t\tplatter_timed "${cmd[@]}"/' "$place/check"
        grep -q platter_timed "$place/check" || die "this xfstests starts its tests in another way"
        touch "$place/platter-built"
    fi
    echo "$stamp"
}

# Part of the machine's users, and three for the tests.
users() {
    local id=61000 name
    cp /etc/passwd "$WORK/passwd"; cp /etc/group "$WORK/group"
    for name in fsgqa fsgqa2 123456-fsgqa; do
        getent passwd "$name" >/dev/null || echo "$name:*:$id:$id::/tmp:/bin/bash" >>"$WORK/passwd"
        getent group "$name" >/dev/null || echo "$name:*:$id:" >>"$WORK/group"
        id=$((id + 1))
    done
}

# Runs `check` with these arguments in fresh surroundings; what came out is in $WORK/results.tsv.
run() {
    cp "$HERE/hooks.sh" "$WORK/hooks.sh"
    mkdir -p "$WORK"/{bin,home,disks,test,scratch,results}
    cp -f "$PLATTER" "$WORK/bin/platter"
    ln -sf platter "$WORK/bin/zpool"; ln -sf platter "$WORK/bin/zfs"
    for part in mount.sh mkfs.sh fsck.sh inside.sh; do install -m 755 "$HERE/$part" "$WORK/bin/platter-${part%.sh}"; done
    rm -rf "$WORK/results" "$WORK"/disks/* "$WORK"/home/*; mkdir "$WORK/results"
    users
    WORK=$WORK INSIDE=$INSIDE SUITE=$1 SECONDS_EACH=${SECONDS_EACH:-300} \
        unshare --pid --fork --kill-child --mount --propagation private --mount-proc "$WORK/bin/platter-inside" "${@:2}" \
        </dev/null || bad=1
    python3 "$HERE/report.py" read "$WORK"/results/result.xml >"$WORK/results.tsv"
}

[ "$(id -u)" = 0 ] || die "xfstests needs root"
[ -x "$PLATTER" ] || die "there is no $PLATTER: cargo build --package platter"
mkdir -p "$WORK"
exec 9>"$WORK/lock"
flock -n 9 || die "another run uses $WORK"
SUITE=$(prepare)
case ${1:-full} in
    full) tests=(-g auto) whole=--whole ;;
    short) tests=(); for number in $SHORT; do tests+=("generic/$number"); done; whole= ;;
    *) tests=("$@") whole= ;;
esac
start=$SECONDS bad=0
run "$SUITE" "${tests[@]}"
mv "$WORK/results.tsv" "$WORK/first.tsv"
rm -rf "$WORK/results-first"; mv "$WORK/results" "$WORK/results-first"
python3 "$HERE/report.py" changed "$EXPECTED" "$WORK/first.tsv" >"$WORK/changed"
: >"$WORK/again.tsv"
if [ -s "$WORK/changed" ]; then
    # Load makes tests fail: alone they may not.
    while read -r test; do
        echo "=== again: $test"
        run "$SUITE" "$test"
        cat "$WORK/results.tsv" >>"$WORK/again.tsv"
        rm -rf "$WORK/results-again/${test//\//-}"; mkdir -p "$WORK/results-again"
        mv "$WORK/results" "$WORK/results-again/${test//\//-}"
    done <"$WORK/changed"
fi
rm -rf "$WORK"/disks/*
echo "xfstests took $(((SECONDS - start) / 60)) min $(((SECONDS - start) % 60)) s"
[ $bad = 0 ] || echo "the daemon, a scrub or zdb was not content in the end: see above"
python3 "$HERE/report.py" compare $whole "$EXPECTED" "$WORK/first.tsv" "$WORK/again.tsv" || bad=1
exit $bad
