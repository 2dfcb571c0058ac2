#!/bin/bash
# OpenZFS's own test suite against Platter's zpool and zfs, its results compared with expected.tsv.
#
#   judges/zts/run.sh                      all groups, but for what expected.tsv says is not run
#   judges/zts/run.sh GROUP [TEST...]...   these groups, or these tests of them (also those that are not run otherwise)
#
# The suite is Debian's package zfs-test; a copy of it is patched and run, nothing of it is kept. Needs root: each lane
# has namespaces, a root, loop devices and a daemon of its own (lane.sh), so what a test removes is nobody else's.
# Ends with 1 when a result is not the expected one, after it came out so twice: the second time alone.
#
#   ZTS_BINARY    the binary that is zpool and zfs (default: target/debug/platter)
#   ZTS_LANES     how many groups run at a time (default: 2)
#   ZTS_LIMIT     seconds that one test may take (default: 1200, twice what the suite gives)
#   ZTS_WORK      folder for the copy, disks and logs (default: target/zts): results.tsv, logs/GROUP/TEST.log
set -euo pipefail

HERE=$(cd "$(dirname "$0")" && pwd)
TARGET=${CARGO_TARGET_DIR:-$HERE/../../target}
BINARY=${ZTS_BINARY:-$TARGET/debug/platter}
LANES=${ZTS_LANES:-2}
PACKAGE=/usr/share/zfs
export ZTS_WORK=${ZTS_WORK:-$TARGET/zts} ZTS_LIMIT=${ZTS_LIMIT:-1200}

say() { printf '%s zts: %s\n' "$(date +%T)" "$*"; }
die() { printf 'zts: %s\n' "$*" >&2; exit 2; }

# One run at a time in a folder: the descriptor is kept open to the end.
start() {
    [ "$(id -u)" -eq 0 ] || die "needs root, for namespaces and loop devices"
    [ -d $PACKAGE/zfs-tests ] || die "no $PACKAGE/zfs-tests: install package zfs-test (.ci/run judges)"
    [ -x "$BINARY" ] || die "no $BINARY: build it (cargo build --package platter)"
    [ -c /dev/fuse ] || die "no /dev/fuse"
    mkdir -p "$ZTS_WORK"
    ZTS_WORK=$(cd "$ZTS_WORK" && pwd)
    exec {LOCK}> "$ZTS_WORK/lock"
    flock -n "$LOCK" || die "$ZTS_WORK is in use by another run"
    rm -rf "${ZTS_WORK:?}"/{suite,path,bin,harness,logs,queue,results.tsv,tests.tsv}
    mkdir -p "$ZTS_WORK"/{suite,path,bin,harness,logs}
}

# A copy of the suite with our edits, and the one folder of programs that tests find.
prepare() {
    local program folder
    cp -a $PACKAGE/zfs-tests $PACKAGE/test-runner $PACKAGE/runfiles "$ZTS_WORK/suite/"
    cat "$HERE/suite.ksh" >> "$ZTS_WORK/suite/zfs-tests/include/libtest.shlib"
    cp "$HERE/lane.sh" "$ZTS_WORK/harness/"
    cp "$BINARY" "$ZTS_WORK/bin/platter"
    for program in zpool zfs mount.zfs; do ln -s platter "$ZTS_WORK/bin/$program"; done
    (
        # shellcheck source=/dev/null
        . $PACKAGE/zfs-tests/include/commands.cfg
        for program in $SYSTEM_FILES_COMMON $SYSTEM_FILES_LINUX $ZFS_FILES mkfs.ext4 fsck.ext4; do
            for folder in /usr/bin /usr/sbin /bin /sbin; do
                [ ! -x $folder/"$program" ] || ln -sf $folder/"$program" "$ZTS_WORK/path/$program"
            done
        done
        for program in $ZFSTEST_FILES; do ln -sf /zts/suite/zfs-tests/bin/"$program" "$ZTS_WORK/path/$program"; done
    )
    ln -s gzip "$ZTS_WORK/path/compress"
    ln -s gunzip "$ZTS_WORK/path/uncompress"
    ln -s mkfs.ext4 "$ZTS_WORK/path/newfs"
    ln -s fsck.ext4 "$ZTS_WORK/path/fsck"
    for program in zpool zfs mount.zfs; do ln -sf /zts/bin/$program "$ZTS_WORK/path/$program"; done
    for program in "$HERE"/tools/*; do
        rm -f "$ZTS_WORK/path/${program##*/}"
        cp "$program" "$ZTS_WORK/path/"
    done
}

# Every test that the suite runs on Linux: group, test, the user that runs it where that is not root, and the section of
# the suite's list.
list_tests() {
    python3 - "$ZTS_WORK/suite/runfiles" > "$ZTS_WORK/tests.tsv" <<'PYTHON'
import ast, configparser, sys
listed = set()
for name in ("common.run", "linux.run"):
    config = configparser.ConfigParser()
    config.read(f"{sys.argv[1]}/{name}")
    for section in config.sections():
        group = section.split(":")[0].removeprefix("tests/functional/")
        for test in ast.literal_eval(config.get(section, "tests", fallback="[]")):
            test = test.removesuffix(".ksh")
            if (group, test) not in listed:
                listed.add((group, test))
                print(group, test, config.get(section, "user") or "ordinary", section, sep="\t")
PYTHON
}

# What is to run: "group<TAB>test test...", a line for each section, since tests count on what its setup does. Words are
# groups, or tests of the group before them.
make_queue() {
    awk -F'\t' -v words="$*" '
        BEGIN { OFS = "\t"; count = split(words, word, " ") }
        FILENAME ~ /expected/ { if (/^[^#]/) expected[$1, $2] = $3; next }
        { group[$1]; order[++tests] = $1 SUBSEP $2; section[tests] = $4 }
        END {
            for (i = 1; i <= count; i++)
                if (word[i] in group) { last = word[i]; wanted[last] = "all" }
                else if (last == "") { print "zts: no group " word[i] > "/dev/stderr"; exit 2 }
                else { wanted[last] = "some"; named[last, word[i]] }
            for (i = 1; i <= tests; i++) {
                split(order[i], at, SUBSEP)
                result = order[i] in expected ? expected[order[i]] : expected[at[1], "*"]
                if (count == 0 ? result == "none" : wanted[at[1]] == "all" ? result == "none" : !(order[i] in named))
                    continue
                if (!(section[i] in line)) { sections[++n] = section[i]; of[n] = at[1] }
                line[section[i]] = line[section[i]] " " at[2]
            }
            for (i = 1; i <= n; i++) print of[i], substr(line[sections[i]], 2)
        }' "$HERE/expected.tsv" "$ZTS_WORK/tests.tsv" > "$ZTS_WORK/queue"
    [ -s "$ZTS_WORK/queue" ] || die "nothing to run: $*"
}

# Runs what is queued in so many lanes.
run_lanes() {
    local lane lanes=()
    for lane in $(seq "$1"); do
        bash "$HERE/lane.sh" "$lane" &
        lanes+=($!)
    done
    # What is in the background is not told of Ctrl-C.
    # shellcheck disable=SC2064 # these lanes
    trap "kill ${lanes[*]} 2>/dev/null" EXIT
    for lane in "${lanes[@]}"; do wait "$lane" || die "a lane failed, see above"; done
    trap - EXIT
    [ ! -s "$ZTS_WORK/queue" ] || die "the lanes have left groups over"
}

# Prints what is not as expected: group, test, the expected result, the result. The last result of a test counts.
changed() {
    awk -F'\t' '
        BEGIN { OFS = "\t" }
        FILENAME ~ /expected/ { if (/^[^#]/) expected[$1, $2] = $3; next }
        !(($1, $2) in result) { order[++n] = $1 SUBSEP $2 }
        { result[$1, $2] = $3 }
        END {
            for (i = 1; i <= n; i++) {
                split(order[i], at, SUBSEP)
                wanted = order[i] in expected ? expected[order[i]] : at[2] == "setup" || at[2] == "cleanup" ? "pass" : "(not listed)"
                if (wanted != "varies" && result[order[i]] != wanted) print at[1], at[2], wanted, result[order[i]]
            }
        }' "$HERE/expected.tsv" "$ZTS_WORK/results.tsv"
}

# How many gave which result, and whose matter those are that did not pass.
summary() {
    awk -F'\t' '
        FILENAME ~ /expected/ { if (/^[^#]/) { sub(/:.*/, "", $4); kind[$1, $2] = $4 } next }
        $2 != "setup" && $2 != "cleanup" { result[$1, $2] = $3 }
        END {
            for (test in result) {
                r = result[test]; count[r]++
                split(test, at, SUBSEP)
                k = test in kind ? kind[test] : kind[at[1], "*"]
                if (r != "pass" && k != "") kinds[r, k]++
            }
            for (r in count) {
                text = ""
                for (pair in kinds) { split(pair, part, SUBSEP); if (part[1] == r) text = text ", " part[2] " " kinds[pair] }
                printf "  %-5s%5d%s\n", r, count[r], text == "" ? "" : ": " substr(text, 3)
            }
        }' "$HERE/expected.tsv" "$ZTS_WORK/results.tsv" | sort
}

main() {
    local again different
    start
    prepare
    list_tests
    make_queue "$@"
    say "$(awk -F'\t' '{ n += split($2, t, " ") } END { print n " tests of " NR " groups" }' "$ZTS_WORK/queue"), $LANES lanes, logs in $ZTS_WORK/logs"
    : > "$ZTS_WORK/results.tsv"
    run_lanes "$LANES"

    again=$(changed)
    if [ -n "$again" ]; then
        say "not as expected, once more alone:"
        printf '%s\n' "$again"
        # shellcheck disable=SC2046 # words are what is wanted
        make_queue $(awk -F'\t' '$2 != "setup" && $2 != "cleanup" { if ($1 != g) print $1; g = $1; print $2 }' <<< "$(sort <<< "$again")")
        run_lanes 1
    fi

    say "$(sort -u -t$'\t' -k1,2 "$ZTS_WORK/results.tsv" | wc -l) results in $ZTS_WORK/results.tsv, after $((SECONDS / 60)) min $((SECONDS % 60)) s:"
    summary
    different=$(changed)
    if [ -n "$different" ]; then
        say "DIFFERENT from judges/zts/expected.tsv (group, test, expected, now):"
        printf '%s\n' "$different"
        exit 1
    fi
    say "all as expected"
}

main "$@"
exit
