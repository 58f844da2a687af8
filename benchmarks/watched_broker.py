"""A broker of ours under watch: how late its event loop is.

`python benchmarks/watched_broker.py OUT --config FILE` runs `ottla broker --config FILE`. A timer
that is due every millisecond notes how late it comes and how much CPU the loop took in between;
SIGUSR2 begins a new count; at the end OUT holds the number of ticks and one line for each that was
late (when, late ms, CPU ms).
"""

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ottla.broker import process

TICK_S = 0.001
WORTH_NOTING_MS = 2.0


class Watch:
    """The timer and what it saw."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.late: list[tuple[float, float, float]] = []
        self.ticks = 0
        self.due_s = 0.0
        self.cpu_s = 0.0
        self.loop: Any = None

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.add_signal_handler(signal.SIGUSR2, self.begin)
        self.arm()

    def begin(self) -> None:
        self.late.clear()
        self.ticks = 0

    def arm(self) -> None:
        self.due_s = time.monotonic() + TICK_S
        self.cpu_s = time.thread_time()
        self.loop.call_later(TICK_S, self.tick)

    def tick(self) -> None:
        late_ms = (time.monotonic() - self.due_s) * 1000
        self.ticks += 1
        if late_ms >= WORTH_NOTING_MS:
            cpu_ms = (time.thread_time() - self.cpu_s) * 1000
            self.late.append((time.time(), late_ms, cpu_ms))
        self.arm()

    def save(self) -> None:
        lines = [json.dumps([self.ticks]), *map(json.dumps, self.late)]
        self.out.write_text("\n".join(lines) + "\n")


def main() -> int:
    out, *rest = sys.argv[1:]
    watch = Watch(Path(out))
    serve = process._serve  # noqa: SLF001 - the broker itself needs no such hook

    async def watched(*given: Any) -> None:
        watch.start()
        try:
            await serve(*given)
        finally:
            watch.save()

    process._serve = watched  # noqa: SLF001
    return process.main(rest)


if __name__ == "__main__":
    sys.exit(main())
