"""argparse, for the programs of this room.

Who may call: `process` where its arguments are unusual (it takes 0.6 MB), the programs of
`ottla zookeeper`.
Invariants: a mistake in the arguments is one line on stderr and exit code 2.
"""

import argparse
import sys
from typing import NoReturn

from ottla.broker.program import EXIT_USAGE


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is one line."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: {message} (see {self.prog} --help)\n")
        sys.exit(EXIT_USAGE)
