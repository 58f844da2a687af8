"""What a command takes, read off its signature.

A parameter is `name: Annotated[int | None, Option("--count", "-n", help="…", min=1)] = None`.
Types: str, int, float, bool, Path, a StrEnum, a list or Sequence of them (repeatable), each also
`| None`. A parameter whose type is a dataclass stands for that class's fields: options that several
commands share, which follow the command's own. Invariant: imports little, since the broker's
programs declare what they take, too.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

KINDS = {
    **{m: ["topic"] for m in ("TOPIC", "TOPIC[:0,1]", "T[,T…]")},
    **{m: ["broker"] for m in ("BROKER", "ID[,ID…]")},
    **{m: ["partition"] for m in ("TOPIC-PARTITION", "TOPIC-PARTITION=BROKERS")},
    "TOPIC-PARTITION[=BROKERS]": ["partition"],
    "TOPIC[-PARTITION]": ["topic", "partition"],
    "GROUP": ["group"],
    "PARTITION": ["number"],
}
"""What kinds of names a value may have, by its metavar. `number`: of a partition of the topic."""


class UsageError(Exception):
    """What was typed cannot be meant. The message is one line."""


class Exit(Exception):  # noqa: N818 - not an error: the command has printed what there is to say
    """Ends a command with an exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Declared:
    """What Option and Argument have in common.

    `names`: as typed; an option without any is named after its parameter. `hidden`: spellings that
    are accepted and not shown. `complete`: the kind of names that a shell completes (topic, group,
    broker, partition, number of a partition, transaction, profile), where `metavar` does not say.
    """

    def __init__(
        self,
        *names: str,
        help: str = "",  # noqa: A002 - as click calls it
        metavar: str = "",
        min: float | None = None,  # noqa: A002
        max: float | None = None,  # noqa: A002
        complete: str = "",
        hidden: Sequence[str] = (),
    ) -> None:
        self.names = names
        self.help = help
        self.metavar = metavar
        self.min = min
        self.max = max
        self.complete = complete
        self.hidden = hidden


class Option(Declared):
    """`--name VALUE`, or `--name` for a bool; in any order, also between arguments."""


class Argument(Declared):
    """A value that is known by its position. A list takes the remaining values and stands last."""


class Parameter(NamedTuple):
    """One parameter of a command. `many`: it may be repeated."""

    name: str
    declared: Declared
    type: Any
    many: bool
    default: Any
    required: bool

    @property
    def is_option(self) -> bool:
        return isinstance(self.declared, Option)

    @property
    def is_flag(self) -> bool:
        return self.type is bool

    @property
    def names(self) -> list[str]:
        """How an option is typed; `--no-name` is added where a flag declares no names."""
        if self.declared.names:
            return list(self.declared.names)
        long = "--" + self.name.strip("_").replace("_", "-")
        return [long, "--no-" + long[2:]] if self.is_flag else [long]

    @property
    def choices(self) -> list[str]:
        """The values of an enumeration, else nothing."""
        return [str(v) for v in self.type] if hasattr(self.type, "__members__") else []

    @property
    def metavar(self) -> str:
        """What help calls a value; an argument that may be left out stands in brackets."""
        text = self.declared.metavar
        if not self.is_option:
            text = text or self.name.upper()
            if self.many and not text.strip("]").endswith("..."):
                text += "..."
            return text if self.required or text.startswith("[") else f"[{text}]"
        kinds = {int: "N", float: "NUMBER", str: "TEXT"}
        return text or "|".join(self.choices) or kinds.get(self.type, "PATH")

    @property
    def kinds(self) -> list[str]:
        """Which names of a cluster a shell completes."""
        if self.declared.complete:
            return [self.declared.complete]
        metavar = self.metavar.removesuffix("...")
        metavar = metavar[1:-1] if metavar.startswith("[") else metavar
        return KINDS.get(metavar.removesuffix("..."), [])


def _plain(annotation: Any) -> tuple[Any, bool]:
    """Return the type of one value, and whether there may be several."""
    parts = [a for a in getattr(annotation, "__args__", ()) if a is not type(None)]
    if getattr(annotation, "__origin__", None) in (list, Sequence):
        return parts[0], True
    return _plain(parts[0]) if parts else (annotation, False)


def _parameter(name: str, annotation: Any, default: Any, *, required: bool) -> Parameter:
    metadata = getattr(annotation, "__metadata__", ())
    declared = next((m for m in metadata if isinstance(m, Declared)), Argument())
    kind, many = _plain(annotation.__origin__ if metadata else annotation)
    return Parameter(name, declared, kind, many, default, required)


def bundles(function: Callable[..., object]) -> dict[str, Any]:
    """Return the parameters of a function that stand for a dataclass's fields, with the class."""
    found = function.__annotations__.items()
    return {n: a for n, a in found if hasattr(a, "__dataclass_fields__") and n != "return"}


def parameters(function: Callable[..., object]) -> list[Parameter]:
    """Return what a command takes: what its signature names, then the fields of its bundles."""
    if hasattr(function, "__dataclass_fields__"):
        return [
            _parameter(
                f.name, f.type, f.default, required=type(f.default).__name__ == "_MISSING_TYPE"
            )
            for f in function.__dataclass_fields__.values()
        ]
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    first = len(names) - len(defaults)
    found: list[Parameter] = []
    shared = bundles(function)
    for i, name in enumerate(names):
        if name in shared:
            continue
        default = defaults[i - first] if i >= first else None
        annotation = function.__annotations__[name]
        found.append(_parameter(name, annotation, default, required=i < first))
    return found + [p for kind in shared.values() for p in parameters(kind)]


def read_plainly(kind: Callable[..., T], words: Sequence[str]) -> T | None:
    """Return the arguments, as a `kind`, where each word is an option's whole name or its value.

    None for any other words.

    A server that is started so need not load click, which each process would keep: 2 MB.
    """
    known = {n: p for p in parameters(kind) if p.is_option and not p.is_flag for n in p.names}
    found: dict[str, Any] = {}
    for name, value in zip_longest(words[::2], words[1::2]):
        p = known.get(name)
        if p is None or value is None or value.startswith("-"):
            return None
        if p.choices and value not in p.choices:
            return None
        if p.type is int and not (value.isascii() and value.isdigit()):
            return None
        if p.many:
            found.setdefault(p.name, []).append(p.type(value))
        else:
            found[p.name] = p.type(value)
    missing = any(p.required and p.name not in found for p in parameters(kind))
    return None if missing else kind(**found)
