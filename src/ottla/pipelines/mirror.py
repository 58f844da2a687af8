"""The mirror job: a replay without an end.

All of it is in `replay`.
"""

import sys
from functools import partial

from ottla.pipelines import job, replay

main = partial(job.main, replay.MIRROR)

if __name__ == "__main__":
    sys.exit(main())
