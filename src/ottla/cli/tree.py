"""Commands and groups of commands by their names; nothing of them is imported before it is run."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from ottla.cli.declaring import Parameter, UsageError, parameters


class Command(NamedTuple):
    """A function, as `module:function`, and its first sentence.

    `section` is the heading in the list of commands. Without a `target` the command is run
    elsewhere (`__main__`).
    """

    target: str
    summary: str
    section: str = ""

    def function(self) -> Callable[..., Any]:
        """Import and return the function."""
        module, _, name = self.target.partition(":")
        found: Callable[..., Any] = getattr(import_module(module), name)
        return found

    def parameters(self) -> list[Parameter]:
        return parameters(self.function())


class Group(NamedTuple):
    """Commands under a common name. `details` follow the summary in its help."""

    summary: str
    children: Mapping[str, "Command | Group"]
    section: str = ""
    details: str = ""


Node = Command | Group


def find(root: Group, words: Sequence[str]) -> tuple[list[str], Node, list[str]]:
    """Return the path of the command that words name, it, and the words behind it.

    A group is returned where no command follows; UsageError for a name that is not there.
    """
    path: list[str] = []
    node: Node = root
    left = list(words)
    while isinstance(node, Group) and left and not left[0].startswith("-"):
        name = left.pop(0)
        if name not in node.children:
            from ottla.cli.spellings import instead_of_command

            instead = instead_of_command(path, name, node.children)
            raise UsageError(f"there is no command {' '.join([*path, name])}{instead}")
        path.append(name)
        node = node.children[name]
    return path, node, left
