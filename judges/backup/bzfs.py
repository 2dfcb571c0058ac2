"""bzfs's own integration tests, one after the other, a line `RESULT pass|fail|error|skip NAME` for each.

bzfs.py [NAME...]: those whose name ends so. Run by inside.sh.
"""
import sys
import traceback
import unittest

from bzfs_main import loggers
from bzfs_tests.itest import test_integrations


class Lines(unittest.TestResult):
    """Says each result at once, so that a run that is cut off is worth something."""

    def line(self, test, word):
        print("RESULT", word, test.id().split("bzfs_tests.itest.")[-1], flush=True)

    def why(self, error):
        print("".join(traceback.format_exception(*error))[-3000:], flush=True)

    def addSuccess(self, test):
        self.line(test, "pass")

    def addFailure(self, test, error):
        self.why(error)
        self.line(test, "fail")

    def addError(self, test, error):
        self.why(error)
        self.line(test, "error")

    def addSkip(self, test, reason):
        print(reason)
        self.line(test, "skip")


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


loggers.set_logging_runtime_defaults()
tests = list(flat(test_integrations.suite()))
if sys.argv[1:]:
    tests = [test for test in tests if test.id().endswith(tuple(sys.argv[1:]))]
unittest.TestSuite(tests).run(Lines())
