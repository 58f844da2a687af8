"""Commands that the admin room knows nothing of, as the list of commands shows them.

Nothing of them is imported here.
"""

from ottla.cli.table import CARE, HERE, INSIDE
from ottla.cli.tree import Command, Group, Node

_WHATIF = "ottla.explain.whatif_command"
WHATIF = Group(
    "Show what an event would do to leaders and ISRs, before it happens.",
    {
        name: Command(f"{_WHATIF}:{function}", summary)
        for name, function, summary in (
            ("kill", "kill", "Say what happens if brokers die."),
            ("shutdown", "shutdown", "Say what happens if brokers are shut down."),
            (
                "rolling-restart",
                "rolling_restart",
                "Say what happens if brokers restart one after the other.",
            ),
            ("drain", "drain", "Say where the replicas of a broker would go, and who leads then."),
            (
                "add-brokers",
                "add_brokers",
                "Say how all topics would be spread with more brokers.",
            ),
            ("reassign", "reassign", "Say what comes of a reassignment plan."),
            ("unclean", "unclean", "Say who would lead after unclean elections, and what is lost."),
            ("config", "config", "Say what a setting of topics would change."),
        )
    },
    INSIDE,
)
_CONSOLE = "ottla.console.command"
_SIM = "ottla.sim.scenarios.commands"
SIM = Group(
    "Look for faults that would lose records with your settings, on simulated time.",
    {
        "check": Command(
            f"{_SIM}:check",
            "Look for faults that break a promise of a cluster.",
        ),
        "scenario": Command(
            f"{_SIM}:scenario",
            "Print a scenario file: all that can be said of a scenario, with its defaults.",
        ),
    },
    HERE,
    "`python -m ottla.sim` runs Ottla's own simulations, by their seeds.",
)


def of_other_rooms() -> dict[str, Node]:
    """Return the commands that the admin room knows nothing of."""
    explain, drawing = "ottla.explain.commands", "ottla.explain.timeline_command"
    return {
        "why": Command(
            f"{explain}:why",
            "Tell why a partition has the leader and ISR it has, from the controllers' journals.",
            INSIDE,
        ),
        "whatif": WHATIF,
        "timeline": Command(
            f"{drawing}:timeline",
            "Draw leaders, ISR, brokers and controllers over time, from the controllers' journals.",
            INSIDE,
        ),
        "replay": Command(
            f"{explain}:replay",
            "Show the cluster as the journals have it, or what the installed rules would do "
            "otherwise.",
            INSIDE,
        ),
        "console": Command(
            f"{_CONSOLE}:console",
            "Show a cluster in a browser: topics, groups, records, settings, what happens and why.",
            CARE,
        ),
        "pipeline": Command(
            "", "Spark jobs around a cluster: `ottla pipeline` lists them.", INSIDE
        ),
        "sim": SIM,
    }
