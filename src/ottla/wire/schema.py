"""The schema language: a message's layout as text, parsed and turned into classes.

A schema is a list of structs, each message before its structs; a line that starts in the first
column begins a struct, indented lines continue it; an empty line precedes each message, or the
comment above it:

    # Read record batches.
    FetchRequest (key 1, versions 0-17, flexible 12+) =
        cluster_id:string@12+?#0=null~ replica_id:int32@0-14=-1 topics:[]FetchTopic
    FetchTopic = topic:string@0-12~ partitions:[]FetchPartition

A field is `name:type`, then in this order and all optional: `@versions` that have it (default:
all), `?versions` in which it may be null (bare `?`: all of its own), `#tag`, `=default` and `~`
if a version without the field may silently drop a value (Kafka's "ignorable").
Invariants: one class per struct, the union of all versions; attribute order is schema order.
Kafka: `MessageSpec`, `FieldSpec` and the classes its generator emits.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, cast

import msgspec

from ottla.model.ids import ZERO_UUID
from ottla.model.ports import Buffer

Records = Buffer | Sequence[Buffer]
"""What a `records` field takes for writing; parsed it is a memoryview."""

ALL_VERSIONS = (0, 32767)
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Types of a fixed size, with their letter in the `struct` module."""

_HEAD = re.compile(
    r"(?P<name>\w+)(?: \(key (?P<key>-?\d+), versions (?P<low>\d+)-(?P<high>\d+)"
    r"(?:, flexible (?P<flexible>\d+)\+)?\))?"
)
_MESSAGE = re.compile(r"^(\w+) \(key.*(?:\n(?!#).+)*", re.MULTILINE)
"""A message with its structs: up to the next empty line."""
_FIELD = re.compile(
    r"(?P<name>[a-z]\w*):(?P<array>\[\])?(?P<type>\w+)(?:@(?P<versions>[\d+-]+))?"
    r"(?P<nullable>\?[\d+-]*)?(?:#(?P<tag>\d+))?(?:=(?P<default>[^~]*))?(?P<ignorable>~)?"
)


class WireStruct(msgspec.Struct, gc=False):
    """Base of every struct on the wire. Not tracked by the collector: messages form no cycles."""

    LAYOUT: ClassVar["StructLayout"]


class Message(WireStruct, gc=False):
    """Base of requests and responses."""

    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_VERSION: ClassVar[int | None]


R = TypeVar("R", bound=Message)


class Request(Message, Generic[R], gc=False):
    """Base of a request whose response is an R, as the stubs beside the schemas say."""


@dataclass(slots=True)
class FieldLayout:
    """One field: what it is, in which versions, and what a missing one means."""

    name: str
    type: str
    array: bool
    versions: tuple[int, int]
    nullable: tuple[int, int] | None
    tag: int | None
    default: Any
    ignorable: bool
    struct: "StructLayout | None" = None

    def present(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def null_allowed(self, version: int) -> bool:
        return self.nullable is not None and self.nullable[0] <= version <= self.nullable[1]


@dataclass(slots=True)
class StructLayout:
    """A struct's fields, and its class once made. `flexible` is meaningful for messages only."""

    name: str
    fields: list[FieldLayout]
    cls: type[WireStruct] | None = None
    key: int = -1
    versions: tuple[int, int] = ALL_VERSIONS
    flexible: int | None = None
    nested: "list[StructLayout]" = field(default_factory=list)

    @property
    def made(self) -> type[WireStruct]:
        assert self.cls is not None
        return self.cls


def parse_versions(text: str) -> tuple[int, int]:
    """Return (first, last) of `3`, `3+` or `3-7`."""
    if text.endswith("+"):
        return int(text[:-1]), ALL_VERSIONS[1]
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def _parse_default(type_: str, *, array: bool, text: str | None) -> Any:
    if text == "null":
        return None
    if array:
        return []
    if text is None:
        zero = {"bool": False, "float64": 0.0, "string": "", "bytes": b"", "uuid": ZERO_UUID}
        return zero.get(type_, 0 if type_ in FIXED else None)
    if type_ == "bool":
        return text == "true"
    if type_ == "string":
        return text
    return float(text) if type_ == "float64" else int(text, 0)


def _parse_field(text: str) -> FieldLayout:
    match = _FIELD.fullmatch(text)
    assert match, f"not a field: {text!r}"
    array = match["array"] is not None
    versions = parse_versions(match["versions"]) if match["versions"] else ALL_VERSIONS
    nullable = None
    if match["nullable"]:
        given = match["nullable"][1:]
        nullable = parse_versions(given) if given else versions
    return FieldLayout(
        name=match["name"],
        type=match["type"],
        array=array,
        versions=versions,
        nullable=nullable,
        tag=int(match["tag"]) if match["tag"] else None,
        default=_parse_default(match["type"], array=array, text=match["default"]),
        ignorable=match["ignorable"] is not None,
    )


def parse(text: str) -> list[StructLayout]:
    """Return the messages of a schema, each with the structs that follow it in `nested`."""
    logical: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            logical[-1] += " " + line.strip()
        elif line and not line.startswith("#"):
            logical.append(line)
    messages: list[StructLayout] = []
    for line in logical:
        head, _, body = line.partition(" =")
        match = _HEAD.fullmatch(head)
        assert match, f"not a struct: {head!r}"
        layout = StructLayout(match["name"], [_parse_field(word) for word in body.split()])
        if match["key"] is None:
            messages[-1].nested.append(layout)
            continue
        layout.key = int(match["key"])
        layout.versions = int(match["low"]), int(match["high"])
        layout.flexible = int(match["flexible"]) if match["flexible"] else None
        messages.append(layout)
    for message in messages:
        _resolve(message)
    return messages


def _resolve(message: StructLayout) -> None:
    """Bind each field of a struct type to the struct it names."""
    by_name = {layout.name: layout for layout in message.nested}
    for layout in (message, *message.nested):
        for item in layout.fields:
            if item.type not in FIXED and item.type not in ("string", "bytes", "records"):
                item.struct = by_name[item.type]


def _field_default(item: FieldLayout) -> Any:
    if item.struct is not None and not item.array and item.default is None and not item.nullable:
        return msgspec.field(default_factory=item.struct.made)
    return item.default


def _make(layout: StructLayout, base: type[WireStruct], module: str, owner: str) -> None:
    for item in layout.fields:  # a struct used as a default must exist first
        if item.struct is not None and item.struct.cls is None:
            _make(item.struct, WireStruct, module, owner)
    made = msgspec.defstruct(
        layout.name,
        [(item.name, Any, _field_default(item)) for item in layout.fields],
        bases=(base,),
        module=module,
        namespace={"LAYOUT": layout},
        gc=False,
    )
    if not issubclass(base, Message):
        made.__qualname__ = f"{owner}.{layout.name}"
    layout.cls = cast("type[WireStruct]", made)


def load(text: str, module: str) -> list[type[Message]]:
    """Make the classes of a schema; return the message classes in the order of the text."""
    made: list[type[Message]] = []
    for message in parse(text):
        base = Request if message.name.endswith("Request") else Message
        _make(message, base, module, message.name)
        cls = cast("type[Message]", message.made)
        cls.API_KEY = message.key
        cls.MIN_VERSION, cls.MAX_VERSION = message.versions
        cls.FLEXIBLE_VERSION = message.flexible
        for layout in message.nested:
            setattr(cls, layout.name, layout.made)
        made.append(cls)
    return made


def made_at_first_use(text: str, module: str) -> Callable[[str], type[Message]]:
    """Return a module's `__getattr__`: a message class is made when it is first asked for.

    So a program pays for the messages it uses, not for those that stand beside them.
    """
    texts = {found[1]: found[0] for found in _MESSAGE.finditer(text)}

    def find(name: str) -> type[Message]:
        if name not in texts:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        (made,) = load(texts[name], module)
        # Whatever thread comes first: there is one class of each message.
        one: type[Message] = vars(sys.modules[module]).setdefault(name, made)
        return one

    return find
