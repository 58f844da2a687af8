"""Writes the `.pyi` beside each message module, so that mypy knows what the schemas say.

Run `python -m ottla.wire.stubs` after a change to a schema; with `--check` it only reports what is
out of date (a unit test does the same). No other module may import this one.
"""

import builtins
import sys
from importlib import import_module
from pathlib import Path

from ottla.wire.apis import APIS
from ottla.wire.schema import FieldLayout, Message, StructLayout

_PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    "records": "Records",
}
_LINE_LENGTH = 100
_OTHER_MODULES = tuple(
    f"ottla.wire.messages.{name}"
    for name in ("consumer_protocol", "group_records", "transaction_records")
)
"""Message modules that are no API of a broker."""


def message_modules() -> list[str]:
    """Return the full names of all modules with a schema."""
    return [spec.module for spec in APIS.values()] + list(_OTHER_MODULES)


def stub_path(module: str) -> Path:
    source = import_module(module).__file__
    assert source is not None
    return Path(source).with_suffix(".pyi")


def stub_text(module: str) -> str:
    """Return what the stub of a message module must say."""
    found = vars(import_module(module)).values()
    messages = [
        value
        for value in found
        if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module
    ]
    body: list[str] = []
    for message in messages:
        body += ["", *_class(message.LAYOUT, "Message", "", message.LAYOUT.name)]
    text = "\n".join(body)
    bases = ["Message"]
    if any(message.LAYOUT.nested for message in messages):
        bases.append("WireStruct")
    if ": Records | None" in text:
        bases.insert(1, "Records")
    lines = ["# Written by `python -m ottla.wire.stubs` from the schema beside it; do not edit."]
    if any(hasattr(builtins, name) for name in _parameter_names(messages)):
        lines.append("# ruff: noqa: A002")
    lines += ["", "from typing import ClassVar", ""]
    lines.append(f"from ottla.wire.schema import {', '.join(bases)}")
    return "\n".join(lines) + "\n" + text + "\n"


def _parameter_names(messages: list[type[Message]]) -> set[str]:
    layouts = [part for cls in messages for part in (cls.LAYOUT, *cls.LAYOUT.nested)]
    return {item.name for layout in layouts for item in layout.fields}


def _class(layout: StructLayout, base: str, indent: str, owner: str) -> list[str]:
    lines = [f"{indent}class {layout.name}({base}):"]
    inner = indent + "    "
    if base == "Message":
        flexible = "int" if layout.flexible is not None else "None"
        names = ("API_KEY", "MIN_VERSION", "MAX_VERSION")
        lines += [f"{inner}{name}: ClassVar[int]" for name in names]
        lines += [f"{inner}FLEXIBLE_VERSION: ClassVar[{flexible}]", ""]
        for nested in layout.nested:
            lines += [*_class(nested, "WireStruct", inner, owner), ""]
    for item in layout.fields:
        lines += _attribute(item, inner, owner)
    if not layout.fields:
        return [*lines, f"{inner}def __init__(self) -> None: ..."]
    lines += [f"{inner}def __init__(", f"{inner}    self,", f"{inner}    *,"]
    for item in layout.fields:
        lines += _parameter(f"{inner}    ", f"{item.name}: {_type(item, owner)} = ...,")
    return [*lines, f"{inner}) -> None: ..."]


def _parameter(indent: str, text: str) -> list[str]:
    """Return a parameter, broken as the formatter would where it is too long for a line."""
    if len(indent + text) <= _LINE_LENGTH:
        return [indent + text]
    if " | None" in text:
        head, _, tail = text.partition(" | None")
        return [indent + head, f"{indent}| None{tail}"]
    head, _, rest = text.partition("[")
    inner, _, tail = rest.partition("]")
    return [f"{indent}{head}[", f"{indent}    {inner}", f"{indent}]{tail}"]


def _attribute(item: FieldLayout, indent: str, owner: str) -> list[str]:
    if item.type != "records":
        return [f"{indent}{item.name}: {_type(item, owner)}"]
    return [  # parsed as a slice of the frame, written from whatever the log hands out
        f"{indent}@property",
        f"{indent}def {item.name}(self) -> memoryview | None: ...",
        f"{indent}@{item.name}.setter",
        f"{indent}def {item.name}(self, value: Records | None) -> None: ...",
    ]


def _type(item: FieldLayout, owner: str) -> str:
    name = f"{owner}.{item.struct.name}" if item.struct else _PYTHON_TYPES.get(item.type, "int")
    if item.array:
        name = f"list[{name}]"
    return f"{name} | None" if item.nullable or item.type == "records" else name


def main(arguments: list[str]) -> int:
    """Write all stubs, or with `--check` name those that differ."""
    stale = 0
    for module in message_modules():
        path, text = stub_path(module), stub_text(module)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.name}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
