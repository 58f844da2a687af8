"""The kinds of fault: their names, how often each is drawn, and what may happen beside another.

Fault numbers are RELIABILITY's.
"""

from dataclasses import dataclass

from ottla.sim.copied_disks import COPIES
from ottla.sim.crash_faults import CRASHES
from ottla.sim.moments import MOMENTS
from ottla.sim.server_faults import SERVERS


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of trouble: how often it is drawn, and which of the table's faults it is."""

    name: str
    weight: int
    number: str


FAULTS = (
    Fault("kill", 4, "F1 F3 F4"),
    Fault("power-loss", 3, "F5 F19"),
    Fault("swap-disk", 1, "F11"),
    Fault("graceful-restart", 2, "F2"),
    Fault("pause", 4, "F7 F8 F9"),
    Fault("isolate", 3, "F13 F14"),
    Fault("one-way", 3, "F13 F15"),
    Fault("cut-zookeeper", 3, "F14"),
    Fault("reset", 2, "F16"),
    Fault("loss", 2, "F16"),
    Fault("slow", 1, "F16"),
    Fault("expire", 3, "F10"),
    Fault("lost-reply", 2, "F6"),
    Fault("zookeeper-pause", 1, "F6"),
    Fault("zookeeper-restart", 1, "F6"),
    Fault("lost-request", 2, "F6"),
    Fault("slow-disk", 1, "F22"),
    Fault("clock-jump", 1, "F23"),
    Fault("kill-all", 1, "F5"),
    Fault("kill-all-power-loss", 1, "F5"),
    Fault("disk-error", 3, "F17 F18"),
    Fault("power-loss-of-several", 3, "F5 F19"),
    Fault("kill-at-operation", 3, "F1 F3 F19"),
    Fault("power-loss-at-operation", 2, "F5 F19"),
    Fault("bounce", 2, "F11 F12"),
    Fault("brief-kill", 2, "F1 F3 F4"),
    Fault("stop-while-waiting", 2, "F2 F5 F48"),
    Fault("failed-starts", 2, "F1 F2 F48"),
    Fault("stop-early", 2, "F2 F48"),
    Fault("cold-cache", 2, "F22"),
    Fault("few-descriptors", 1, "F45"),
    Fault("dropped-pages", 2, "F18"),
    Fault("leader-dies-amid-catch-up", 6, "F5 F12"),
    Fault("power-loss-at-rejoin", 6, "F5 F11"),
    Fault("controller-lost-while-cut-off", 6, "F4 F14 F26"),
    Fault("leader-cut-off-from-followers", 4, "F13 F36"),
    Fault("slow-recovery", 4, "F9 F19"),
    Fault("flipped-bit", 6, "F20"),
    Fault("target-replaced-at-disk-loss", 4, "F11 F24"),
    Fault("power-loss-after-roll", 4, "F5"),
    Fault("refused", 6, "F44"),
    Fault("refused-briefly", 3, "F44"),
    Fault("killed-behind-proxy", 2, "F44"),
    Fault("kill-several", 4, "F44"),
    Fault("controller-refused-while-cut-off", 4, "F44"),
    Fault("returns-while-removed", 4, "F44"),
    Fault("lowered-min-isr", 4, "F50"),
    Fault("lowered-for-the-last", 6, "F50"),
    Fault("zookeeper-restored", 5, "F51"),
    Fault("older-disk", 5, "F52"),
    Fault("older-disk-of-eligible", 6, "F52"),
    Fault("swapped-disks", 2, "F52"),
    Fault("second-process", 3, "F53"),
    Fault("second-process-while-silent", 4, "F53"),
    Fault("late-request", 6, "F54"),
    Fault("late-end-txn", 6, "F54"),
    Fault("late-markers", 6, "F54"),
    Fault("zookeeper-disk-error", 3, "F55"),
    Fault("zookeeper-dropped-pages", 3, "F55"),
    Fault("zookeeper-no-threads", 2, "F55"),
    Fault("power-loss-at-deletion", 6, "F5 F26"),
)
HARMLESS = (
    "reset",
    "loss",
    "slow",
    "slow-disk",
    "clock-jump",
    "lost-reply",
    "lost-request",
    "zookeeper-pause",
    "zookeeper-restart",
    "cold-cache",
    "refused-briefly",
    "lowered-min-isr",
    "late-request",
    "zookeeper-disk-error",
    "zookeeper-dropped-pages",
    "zookeeper-no-threads",
)
"""What may happen while a broker has not got its unsynced records back."""
BRIEF = (
    *HARMLESS,
    *("power-loss", "power-loss-of-several", "power-loss-at-operation", "kill-all-power-loss"),
    *("swap-disk", "stop-early", "kill", "kill-at-operation", "bounce", "failed-starts", "pause"),
    *("graceful-restart", "expire", "brief-kill", "stop-while-waiting"),
    *("older-disk", "second-process", "second-process-while-silent", "power-loss-at-deletion"),
)
"""What may happen meanwhile to those that lack records, and briefly to all (`hard`)."""
ALL_NAMES = tuple(fault.name for fault in FAULTS)
AIMED = tuple(MOMENTS)
"""What waits for a moment (`moments`)."""
ASKED_FOR = ("few-descriptors", *AIMED)
"""What a plan does not have unless it is named: the kept seeds are older. Half of the drawn runs
have it."""
OF_CRASHES = tuple(CRASHES)
"""What a plan has only where refused connections prove that a process is gone (`crash_faults`)."""
DEEDS = {**MOMENTS, **CRASHES, **COPIES, **SERVERS}
OF_STATEMENTS = (*COPIES, *SERVERS)
"""What a plan has only where it is named: what disks, settings, late bytes and the coordination
server say is not true any more (F50 to F55)."""
NOT_DRAWN = ("late-markers",)
"""What the protocol cannot prevent (`server_faults.LATE_MARKERS`): only where it is named."""
DRAWN_STATEMENTS = tuple(name for name in OF_STATEMENTS if name not in NOT_DRAWN)
NAMES = tuple(name for name in ALL_NAMES if name not in (*ASKED_FOR, *OF_CRASHES, *OF_STATEMENTS))
