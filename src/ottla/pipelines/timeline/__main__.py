"""`python -m ottla.pipelines.timeline`: the same as `ottla pipeline timeline`."""

import sys

from ottla.pipelines.timeline.command import main

sys.exit(main())
