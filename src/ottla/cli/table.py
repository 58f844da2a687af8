"""The tree of all commands, read from commands.txt: none of them is imported to be listed."""

import re
from dataclasses import dataclass, field
from functools import cache

PROGRAMS = ("broker.", "pipelines.")
"""Rooms whose commands are programs of their own: they have no options but those they declare."""


@dataclass(slots=True)
class Node:
    """A command, or a group of commands.

    `target`: `module:function` below `ottla`, empty for groups and for what this room does itself.
    `details`: what help adds to the summary. `instead`: the words that a renamed command means.
    """

    summary: str
    target: str = ""
    task: str = ""
    common: bool = False
    details: str = ""
    instead: str = ""
    children: "dict[str, Node]" = field(default_factory=dict)

    @property
    def is_program(self) -> bool:
        return self.target.startswith(PROGRAMS)

    def below(self, words: list[str]) -> "Node":
        """Return the node that words name; KeyError."""
        return self.children[words[0]].below(words[1:]) if words else self


@cache
def load() -> tuple[Node, dict[str, str]]:
    """Return the tree of commands, and the tasks by name with what they are about."""
    root = Node("A replicated log that speaks Apache Kafka's protocol.")
    root.details = (
        "`ottla up` starts a cluster here. `ottla help` lists all commands, and `ottla COMMAND "
        "--help` explains one of them."
    )
    tasks: dict[str, str] = {}
    node = root
    path = f"{__file__.rpartition('/')[0]}/commands.txt"  # pathlib takes its time
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        for line in file.read().splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            if line.startswith("["):
                task, _, about = line[1:].partition("] ")
                tasks[task] = about
            elif line.startswith(" "):
                text = line.strip()  # an example is a paragraph of its own, which is not wrapped
                node.details += (
                    f"\n\n\b\n{text}\n\n" if text.startswith("Example: ") else f"{text}\n"
                )
            else:
                words, target, *summary = re.split("  +", line.removeprefix("* "), maxsplit=2)
                alias = target.removeprefix("= ") if target.startswith("= ") else ""
                node = Node(
                    summary[0] if summary else "",
                    "" if alias or target == "-" else target,
                    task,
                    common=line.startswith("* "),
                    instead=alias,
                )
                *above, last = words.split()
                root.below(above).children[last] = node
    return root, tasks
