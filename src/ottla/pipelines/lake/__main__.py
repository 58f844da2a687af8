"""Runs the lake job: `python -m ottla.pipelines.lake`."""

import sys

from ottla.pipelines.lake.command import main

if __name__ == "__main__":
    sys.exit(main())
