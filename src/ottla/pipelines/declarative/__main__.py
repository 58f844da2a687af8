"""`python -m ottla.pipelines.declarative`: the same as `ottla pipeline init`."""

import sys

from ottla.pipelines.declarative.command import main

sys.exit(main())
