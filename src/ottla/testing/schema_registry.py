"""A schema registry beside a cluster under test, in a thread of its own.

Invariants: every wait has a bound; what it cannot do is an OttlaError of one line.
"""

import asyncio
import threading

from ottla.local.cluster_dir import HOST
from ottla.model.errors import StartupError
from ottla.registry.command import missing_libraries

STARTS_WITHIN_S = 60.0
ENDS_WITHIN_S = 15.0


class SchemaRegistry:
    """A running registry; `url` is what serializers take as `schema.registry.url`."""

    def __init__(self, bootstrap: str) -> None:
        missing = missing_libraries()
        if missing:
            raise StartupError(
                f"a schema registry needs {missing[0]}: pip install 'ottla[registry]'"
            )
        self.url = ""
        self._bootstrap = bootstrap
        self._error: BaseException | None = None
        self._known = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="schema-registry", daemon=True)
        self._thread.start()
        if not self._known.wait(STARTS_WITHIN_S):
            self.close()
            raise StartupError(f"the schema registry did not start within {STARTS_WITHIN_S:g} s")
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to the thread that waits
            self._error = error
            self._known.set()

    async def _serve(self) -> None:
        from ottla.registry.server import listening, registry_client, serve

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()

        def started(url: str) -> None:
            self.url = url
            self._known.set()

        client = registry_client(self._bootstrap)
        try:
            await serve(client, listening(HOST, 0), started, self._stop)
        finally:
            await client.close()

    def close(self) -> None:
        """End it; closing twice is fine."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(ENDS_WITHIN_S)
