"""`ottla schema-registry`: the registry as a program.

Invariants: it listens on this machine alone unless another address is named; what it lacks is one
line.
"""

import contextlib
import sys
from importlib.util import find_spec
from typing import Annotated, Any

from ottla.admin.connection import Connection
from ottla.cli import Option
from ottla.cli.output import print_line
from ottla.model.errors import StartupError
from ottla.registry import LIBRARIES


def schema_registry(
    target: Connection,
    port: Annotated[
        int,
        Option(metavar="PORT", help="Port to listen on; 0 chooses a free one", min=0, max=65535),
    ] = 8081,
    host: Annotated[str, Option(metavar="ADDRESS", help="Address to listen on")] = "127.0.0.1",
) -> None:
    missing = missing_libraries()
    if missing:
        raise StartupError(
            f"a schema registry needs {', '.join(missing)}, not installed here: "
            "pip install 'ottla[registry]'"
        )
    from ottla.model.waits import silence
    from ottla.registry.server import REQUEST_TIMEOUT_S, listening, serve

    try:
        listener = listening(host, port)
    except OSError as error:
        raise StartupError(f"--port {port}: {error.strerror or error}; name another") from None

    async def question(client: Any) -> None:
        silence()
        await serve(client, listener, _tell)

    with contextlib.suppress(KeyboardInterrupt):
        target.ask(question, timeout_s=REQUEST_TIMEOUT_S)


def missing_libraries() -> list[str]:
    """Return the names of libraries that it needs and that are not installed."""
    return [name for name in LIBRARIES if not _is_there(name)]


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # what it lies in
        return False


def _tell(url: str) -> None:
    print_line(f"schema.registry.url={url}")
    sys.stdout.flush()
