#!/bin/sh
# All tests of the workspace, once it is built: this crate's, and beside them those of all other crates, which are shown
# when this crate's are done.
#
#   crates/itest/all.sh        CARGO (default cargo), and what the tests themselves ask the environment for
#
# Both call cargo for the whole workspace, so that it finds what was built; each passes over the other's programs.
set -u
cd "$(dirname "$0")/../.." || exit 1

# What cargo runs a program with, in the folder of its crate.
runner='case $PWD in */crates/itest) crate=itest;; *) crate=other;; esac
    [ $crate != $0 ] || exec "$@"'

# The tests of "$1", with what else is given before the command.
tests_of() {
    crate=$1
    shift
    exec "$@" ${CARGO:-cargo} --config "target.'cfg(all())'.runner = ['sh', '-c', '''$runner''', '$crate']" \
        test --workspace --lib --bins --tests --no-fail-fast
}

shown_later=$(mktemp) || exit 1
trap 'rm -f "$shown_later"' EXIT
# What waits for a disk or a time is not to wait for a processor.
(tests_of other nice -n 10) >"$shown_later" 2>&1 &
other=$!
trap 'kill $other; exit 130' INT TERM
(tests_of itest)
itest_failed=$?
wait $other
other_failed=$?
cat "$shown_later"
[ $itest_failed -eq 0 ] && [ $other_failed -eq 0 ]
