"""argparse, for the programs of this room.

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
