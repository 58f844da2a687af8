"""Commands that the admin room knows nothing of, as the list of commands shows them.

Who may call: `ottla.__main__`, which runs those without a target itself. Nothing of them is
imported here.
"""

from ottla.admin.arguments.tree import Command, Node
from ottla.admin.command_table import HERE, INSIDE


def of_other_rooms() -> dict[str, Node]:
    """Return the commands that the admin room knows nothing of."""
    explain, drawing = "ottla.explain.commands", "ottla.explain.timeline_command"
    return {
        "why": Command(
            f"{explain}:why",
            "Tell why a partition has the leader and ISR it has, from the controllers' journals.",
            INSIDE,
        ),
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
        "pipeline": Command(
            "", "Spark jobs around a cluster: `ottla pipeline` lists them.", INSIDE
        ),
        "sim": Command("", "Simulate a cluster with faults, replayable by its seed.", HERE),
    }
