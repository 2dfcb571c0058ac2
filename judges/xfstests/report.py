#!/usr/bin/env python3
"""What xfstests said, and how that differs from what is expected.

  read RESULT.XML                      one line for each test: test, pass|fail|notrun, what was said
  changed EXPECTED RESULTS             tests whose result is not the expected one
  compare [--whole] EXPECTED RESULTS AGAIN   counts and differences; fails when there are any. A result in AGAIN (run
                                       alone) counts in place of the first. --whole: all of EXPECTED must have been run

EXPECTED has: test, result, reason. `varies` takes pass and fail. A test that is not in it is expected to pass.
"""
import sys
import xml.etree.ElementTree as xml


def table(path):
    lines = [line.rstrip("\n").split("\t") for line in open(path) if line.strip() and not line.startswith("#")]
    return {line[0]: (line[1], line[2] if len(line) > 2 else "") for line in lines}


def read(path):
    for case in xml.parse(path).getroot().iter("testcase"):
        result, said = "pass", ""
        for kind, name in (("skipped", "notrun"), ("failure", "fail"), ("error", "fail")):
            if (found := case.find(kind)) is not None:
                result, said = name, " ".join((found.get("message") or "").split())
        print(case.get("name"), result, said, case.get("time") or "", sep="\t")


def differs(expected, test, result):
    wanted = expected.get(test, ("pass", ""))[0]
    return wanted != result and not (wanted == "varies" and result in ("pass", "fail"))


def changed(expected, results):
    expected = table(expected)
    for test, (result, _) in sorted(table(results).items()):
        if differs(expected, test, result):
            print(test)


def compare(expected, first, again, whole):
    expected, results = table(expected), table(first)
    results.update(table(again))
    wrong = 0
    for test, (result, said) in sorted(results.items()):
        if differs(expected, test, result):
            wanted, reason = expected.get(test, ("pass", "not in the list"))
            print(f"CHANGED {test}: {wanted} was expected ({reason or 'no reason'}), now {result}: {said}")
            wrong += 1
    for test in sorted(set(expected) - set(results)) if whole else []:
        print(f"CHANGED {test}: {expected[test][0]} was expected, but it was not run")
        wrong += 1
    count = {kind: sum(result == kind for result, _ in results.values()) for kind in ("pass", "fail", "notrun")}
    print(f"xfstests: {count['pass']} pass, {count['fail']} fail, {count['notrun']} not run; {wrong} not as expected")
    return 1 if wrong or not count["pass"] else 0


words = [word for word in sys.argv[1:] if word != "--whole"]
match words:
    case ["read", path]:
        read(path)
    case ["changed", expected, results]:
        changed(expected, results)
    case ["compare", expected, first, again]:
        sys.exit(compare(expected, first, again, "--whole" in sys.argv))
    case _:
        sys.exit(__doc__)
