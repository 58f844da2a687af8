"""The mirror job: replay without an end.

All of it is in `replay`.
"""

import sys
from collections.abc import Sequence

from ottla.pipelines import replay


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code."""
    return replay.main(arguments, replay.MIRROR)


if __name__ == "__main__":
    sys.exit(main())
