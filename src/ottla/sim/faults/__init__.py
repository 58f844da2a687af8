"""The faults that the nemesis draws, one function each.

Modules declare in the order of their names: what a seed draws depends on it.
"""

from ottla.sim.faults import at_any_time, moments, refusals, statements  # noqa: F401 - declare
from ottla.sim.faults.strike import FAULTS, Drawn, Fault, Meanwhile, Strike
from ottla.sim.plans import ALWAYS

__all__ = ["ALL_NAMES", "DRAWN", "FAULTS", "Drawn", "Fault", "Meanwhile", "Strike", "chosen"]

DRAWN = {how: tuple(fault.name for fault in FAULTS if fault.drawn is how) for how in Drawn}
ALL_NAMES = tuple(fault.name for fault in FAULTS)


def chosen(names: tuple[str, ...]) -> list[Fault]:
    """Return the faults that a plan names, by their names or as `ALWAYS`."""
    return [
        fault
        for fault in FAULTS
        if fault.name in names or (fault.drawn is Drawn.ALWAYS and ALWAYS in names)
    ]
