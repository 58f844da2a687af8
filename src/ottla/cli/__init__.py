"""Arguments: what a command takes, read off its signature; parsed, explained, completed.

Invariants: imports little, so that `ottla --help` takes as long as Python needs to start; a
command's module is imported when it runs or is asked for its help; what is typed wrong is one
`UsageError`.

A parameter is `name: Annotated[int | None, Option("--count", "-n", help="…", min=1)] = None`.
Types: str, int, float, bool, Path, a StrEnum, a list of them (repeatable), each also `| None`.
"""

from ottla.cli.declaring import Argument, Exit, Option, UsageError

__all__ = ["Argument", "Exit", "Option", "UsageError"]
