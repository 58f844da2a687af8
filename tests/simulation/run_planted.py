"""`python -m ottla.sim` with a planted bug: `run_planted.py NAME arguments…`."""

import sys

import pytest
from test_planted_bugs import BUGS

from ottla.sim.__main__ import main

if __name__ == "__main__":
    plant = {plant.__name__: plant for plant in BUGS}[sys.argv[1]]
    plant(pytest.MonkeyPatch())
    sys.exit(main(sys.argv[2:]))
