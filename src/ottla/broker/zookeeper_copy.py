"""`ottla zookeeper copy FROM TO`: the znodes of one server's dataDir into that of another one.

Invariants: bad input and folders that cannot be used end in one line on stderr and exit code 1 (2
for bad usage), and leave both folders as they were.
"""

import sys
from collections.abc import Sequence

from ottla.broker.argument_parser import Parser
from ottla.broker.program import EXIT_FAILED, EXIT_OK
from ottla.log.files import OsFiles
from ottla.model.errors import OttlaError
from ottla.net import runtime
from ottla.zookeeper import data_copy


def main(argv: Sequence[str]) -> int:
    """Copy; return the exit code."""
    parser = Parser(
        prog="ottla zookeeper copy",
        description="Copy the znodes of a ZooKeeper server that has stopped, ours or a real one "
        "(3.5 to 3.9), into the dataDir of another one, ours or a real one. Versions, zxids and "
        "ACLs stay as they are. The folder copied from is only read.",
    )
    parser.add_argument("source", metavar="FROM", help="the dataDir with the znodes")
    parser.add_argument("target", metavar="TO", help="a dataDir without znodes")
    arguments = parser.parse_args(argv)
    source, target = (path.rstrip("/") or "/" for path in (arguments.source, arguments.target))
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
