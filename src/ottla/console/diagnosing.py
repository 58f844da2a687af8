"""The doctor's findings, asked for in the background: a page never waits for them.

Invariants: what is found is `admin.diagnosis`'s; one diagnosis at a time, and one result is kept.
"""

import asyncio
import time

from ottla.admin.diagnosis import asking
from ottla.admin.diagnosis.asking import Asked
from ottla.admin.diagnosis.facts import Finding
from ottla.admin.diagnosis.rules import judged
from ottla.client.client import Client
from ottla.local.cluster_dir import ClusterDir
from ottla.model.errors import OttlaError

WATCH_S = 3.0
OLDER_THAN_MS = 900_000
LONGEST_S = 120.0
LEAST_S = 5.0
"""Between two diagnoses, whatever happens."""
FRESH_S = 60.0
PAUSES = 20
"""Findings are fresh for so many times as long as it took to ask for them, and FRESH_S at least."""


class Diagnosing:
    """The newest findings; None before the first ones are there."""

    def __init__(self, client: Client, folder: ClusterDir | None = None) -> None:
        self.findings: list[Finding] | None = None
        self.not_asked: list[str] = []
        self.problem = ""
        self.clock = ""
        """When the findings were complete."""
        self._client = client
        self._folder = folder
        self._about: object = None
        self._ended_s = float("-inf")
        self._fresh_s = FRESH_S
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    def begin(self, *, again: bool = False, about: object = None) -> None:
        """Ask for findings, unless that is done already; `again`: fresh ones are asked for, too.

        `about`: what is known of the cluster; findings about something else are not fresh.
        """
        fresh_s = self._fresh_s if about in (None, self._about) else LEAST_S
        if self.running or (not again and time.monotonic() - self._ended_s < fresh_s):
            return
        self._about = about
        self._task = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(LONGEST_S):
                asked = Asked(WATCH_S, OLDER_THAN_MS, made_here=self._made_here())
                facts = await asking.ask(self._client, asked)
            self.findings = await asyncio.to_thread(judged, facts)
            self.not_asked, self.problem = facts.not_asked, ""
        except (OttlaError, TimeoutError) as error:
            self.problem = str(error) or f"not finished after {LONGEST_S:g} s"
        finally:
            self.clock = time.strftime("%H:%M:%S")
            self._ended_s = time.monotonic()
            self._fresh_s = max(FRESH_S, PAUSES * (self._ended_s - began_s - WATCH_S))

    def _made_here(self) -> bool:
        cluster = None if self._folder is None else self._folder.load()
        return cluster is not None and not cluster.zookeeper.external

    async def stop(self) -> None:
        """End what is checking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
