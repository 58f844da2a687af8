"""The verdict on a run: what was wrong, what it went through, and how long callbacks took."""

import logging
import traceback
from dataclasses import dataclass
from typing import NamedTuple

from ottla.sim.clock import NoThreadError
from ottla.sim.plans import Plan
from ottla.sim.world import Node

LONGEST_CALLBACK_S = 0.020
"""What a broker's callback may take, but for one in a thousand."""


@dataclass(slots=True)
class Verdict:
    """How a run ended."""

    plan: Plan
    anomalies: list[str]
    digest: str
    steps: int
    virtual_s: float
    faults: list[str]
    statistics: dict[str, int]
    operations: list[str]
    """What administrators and movers began: seconds, #name, kind."""
    gaps_s: list[float]
    """How long partitions had no write acknowledged, sorted."""
    stalls: "Stalls"

    def gap_s(self, quantile: float) -> float:
        """Return that quantile of the unavailable times, 0 if there were none."""
        last = len(self.gaps_s) - 1
        return self.gaps_s[round(quantile * last)] if self.gaps_s else 0.0

    @property
    def passed(self) -> bool:
        return not self.anomalies


class Stalls(NamedTuple):
    """How long the brokers' callbacks took, in seconds of a machine that costs what is measured."""

    callbacks: int
    p999_s: float
    longest_s: float
    longest: str
    """broker and callback"""


class Tracebacks(logging.Handler):
    """Collects what the product's loop roots caught and logged: each is a bug."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            if isinstance(error, NoThreadError):
                return  # where it came from is worth a log line
            frame = traceback.extract_tb(error.__traceback__)[-1:]
            where = f"{frame[0].filename}:{frame[0].lineno}" if frame else "?"
            self.found.append(f"logged: {record.getMessage()}: {error!r} at {where}")


def stalls_of(nodes: list[Node], slowness: float) -> Stalls:
    """Return how long the callbacks of nodes took, as if their machines were as measured."""
    callbacks = sum(node.callbacks for node in nodes)
    noted = sorted(
        (
            (took_s / (slowness or 1.0), f"{node.name} {what}")
            for node in nodes
            for took_s, what in node.stalls
        ),
        reverse=True,
    )
    beyond = callbacks // 1000
    p999_s = noted[beyond][0] if beyond < len(noted) else 0.0
    longest_s, longest = noted[0] if noted else (0.0, "none")
    return Stalls(callbacks, p999_s, longest_s, longest)
