"""What a command's signature says of its parameters."""

from collections.abc import Callable, Sequence
from typing import Any

KINDS = {
    "TOPIC": ["topic"], "GROUP": ["group"], "BROKER": ["broker"], "PARTITION": ["number"],
    "TOPIC[:0,1]": ["topic"], "T[,T…]": ["topic"], "ID[,ID…]": ["broker"],
    "TOPIC-PARTITION": ["partition"], "TOPIC[-PARTITION]": ["topic", "partition"],
    "TOPIC-PARTITION=BROKERS": ["partition"], "TOPIC-PARTITION[=BROKERS]": ["partition"],
}  # fmt: skip
"""What a parameter takes by its metavar, where it does not declare it. `number`: a partition's."""


class UsageError(Exception):
    """Something was typed wrong. The message is one line for whoever typed it."""


class Exit(Exception):  # noqa: N818 - no error: the command has said all
    """Ends a command with an exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Declared:
    """What Option and Argument have in common.

    `names`: as typed; an option without any is named after its parameter. `complete`: what kind of
    names a shell may complete (topic, group, broker, partition, number of a partition, transaction,
    profile), where the metavar does not say it.
    """

    def __init__(
        self,
        *names: str,
        help: str = "",  # noqa: A002 - the word everybody expects here
        metavar: str = "",
        min: float | None = None,  # noqa: A002
        max: float | None = None,  # noqa: A002
        complete: str = "",
    ) -> None:
        self.names = names
        self.help = help
        self.metavar = metavar
        self.min = min
        self.max = max
        self.complete = complete


class Option(Declared):
    """`--name VALUE`, or `--name` for a bool; in any order, also between arguments."""


class Argument(Declared):
    """A value that is known by its place. A list takes what is left and stands last."""


class Parameter:
    """One parameter of a command, as it is parsed."""

    __slots__ = ("declared", "default", "many", "name", "names", "required", "type")

    def __init__(self, name: str, annotation: Any, default: Any, *, required: bool) -> None:
        self.name = name
        self.default = default
        self.required = required
        metadata = getattr(annotation, "__metadata__", ())
        found = [m for m in metadata if isinstance(m, Declared)]
        self.declared: Declared = found[0] if found else Argument()
        self.type, self.many = _plain(annotation.__origin__ if metadata else annotation)
        long = "--" + name.strip("_").replace("_", "-")
        self.names: Sequence[str] = self.declared.names or (long,)
        if self.is_flag and not self.declared.names:
            self.names = (long, "--no-" + long[2:])

    @property
    def is_option(self) -> bool:
        return isinstance(self.declared, Option)

    @property
    def is_flag(self) -> bool:
        return self.type is bool

    @property
    def choices(self) -> list[str]:
        """The values of an enumeration, else nothing."""
        return [str(v) for v in self.type] if hasattr(self.type, "__members__") else []

    @property
    def metavar(self) -> str:
        """How a value is called in help."""
        if self.declared.metavar:
            return self.declared.metavar
        if not self.is_option:
            return self.name.upper()
        if self.choices:
            return "|".join(self.choices)
        return {int: "N", float: "NUMBER"}.get(self.type, "TEXT" if self.type is str else "PATH")

    @property
    def kinds(self) -> list[str]:
        """Which kinds of names of a cluster it takes, for shells to complete."""
        if self.declared.complete:
            return [self.declared.complete]
        metavar = self.metavar.removesuffix("...")
        return KINDS.get(metavar[1:-1] if metavar.startswith("[") else metavar, [])

    @property
    def shown(self) -> str:
        """How the parameter is called in messages."""
        if self.is_option:
            return max(self.names, key=len) if len(self.names) > 1 else self.names[0]
        return self.metavar


def _plain(annotation: Any) -> tuple[Any, bool]:
    """Return the type of one value, and whether there may be several."""
    parts = [a for a in getattr(annotation, "__args__", ()) if a is not type(None)]
    if getattr(annotation, "__origin__", None) is list:
        return parts[0], True
    if parts:  # X | None
        return _plain(parts[0])
    return annotation, False


def asks_cluster(known: Sequence[Parameter]) -> bool:
    """Return whether a command needs a cluster, and so has the options of a connection."""
    return any(p.name == "bootstrap_server" for p in known)


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """Return what a command takes, in the order of its signature.

    A command that is made of several functions names them in `declared_by`: those of its own, then
    those that it shares with others.
    """
    parts = getattr(function, "declared_by", None)
    if parts is not None:
        return [parameter for part in parts for parameter in parameters(part)]
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    first = len(names) - len(defaults)
    return [
        Parameter(
            name,
            function.__annotations__[name],
            defaults[i - first] if i >= first else None,
            required=i < first,
        )
        for i, name in enumerate(names)
    ]
