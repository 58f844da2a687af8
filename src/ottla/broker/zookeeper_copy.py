"""`ottla zookeeper copy FROM TO`: the znodes of one server's dataDir into that of another one.

Invariants: bad input and folders that cannot be used end in one line on stderr and exit code 1 (2
for bad usage), and leave both folders as they were.
"""

import sys
from typing import Annotated

from ottla.broker.program import EXIT_FAILED, EXIT_OK
from ottla.cli import Argument
from ottla.log.files import OsFiles
from ottla.model.errors import OttlaError
from ottla.net import runtime
from ottla.zookeeper import data_copy


def copy(
    source: Annotated[str, Argument(metavar="FROM", help="The dataDir with the znodes")],
    target: Annotated[str, Argument(metavar="TO", help="A dataDir without znodes")],
) -> int:
    source, target = (path.rstrip("/") or "/" for path in (source, target))
    try:
        found = data_copy.copy(runtime.real_world(OsFiles()), source, target)
    except OttlaError as error:
        sys.stderr.write(f"ottla zookeeper: {error}\n")
        return EXIT_FAILED
    sys.stdout.write(
        f"copied {found.znodes} znodes at zxid {found.zxid:#x} into {target}"
        + (f", cluster {found.cluster_id}" if found.cluster_id else "")
        + (f", {found.sessions} sessions that were not closed" if found.sessions else "")
        + "\n"
    )
    return EXIT_OK
