"""Writes the `.pyi` beside each message module, so that mypy knows what the schemas say.

Run `python -m ottla.wire.stubs` after a change to a schema; with `--check` it only reports what is
out of date (a unit test does the same). No other module may import this one.
"""

import re
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from ottla.wire import messages
from ottla.wire.schema import FieldLayout, StructLayout, parse

_PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    "records": "Records",
}

LINE_LENGTH = 100


def message_modules() -> list[str]:
    """Return the full names of all modules with a schema."""
    return [f"{messages.__name__}.{found.name}" for found in iter_modules(messages.__path__)]


def stub_path(module: str) -> Path:
    source = import_module(module).__file__
    assert source is not None
    return Path(source).with_suffix(".pyi")


def stub_text(module: str) -> str:
    """Return what the stub of a message module must say."""
    found = parse(import_module(module).SCHEMA)
    body: list[str] = []
    # A response precedes the request that names it: mypy knows its classes then.
    for message in sorted(found, key=lambda m: "Request" in m.name):
        base = message.name.replace("Request", "Response")
        base = "Message" if base == message.name else f"Request[{base}]"
        body += ["", *_class(message, base, "", message.name)]
    text = "\n".join(body)
    known = ("Message", "Records", "Request", "WireStruct")
    bases = [name for name in known if re.search(rf"\b{name}\b", text)]
    lines = ["# Written by `python -m ottla.wire.stubs` from the schema beside it; do not edit."]
    lines += ["", f"from ottla.wire.schema import {', '.join(bases)}"]
    return "\n".join(lines) + "\n" + text + "\n"


def _class(layout: StructLayout, base: str, indent: str, owner: str) -> list[str]:
    """Return a class: type checkers make `__init__` of its fields, as for a dataclass."""
    head = f"{indent}class {layout.name}({base}, kw_only=True):"
    if len(head) > LINE_LENGTH:  # as the formatter would
        head = f"class {layout.name}(\n    {base}, kw_only=True\n):"
    lines = [head]
    inner = indent + "    "
    if base != "WireStruct":
        for nested in layout.nested:
            lines += [*_class(nested, "WireStruct", inner, owner), ""]
    if any(item.type == "records" for item in layout.fields):
        return lines + _with_records(layout, inner, owner)
    for item in layout.fields:
        line = f"{inner}{item.name}: {_type(item, owner)} = ..."
        if len(line) > LINE_LENGTH:  # as the formatter would
            line = line.replace("[", f"[\n{inner}    ").replace("]", f"\n{inner}]")
        lines.append(line)
    return lines if layout.fields else [*lines, f"{inner}..."]


def _with_records(layout: StructLayout, indent: str, owner: str) -> list[str]:
    """Return the fields of a class that holds records.

    They are parsed as a slice of the frame, and written from what the log returns.
    """
    lines = []
    for item in layout.fields:
        if item.type == "records":
            lines += [
                f"{indent}@property",
                f"{indent}def {item.name}(self) -> memoryview | None: ...",
                f"{indent}@{item.name}.setter",
                f"{indent}def {item.name}(self, value: Records | None) -> None: ...",
            ]
        else:
            lines.append(f"{indent}{item.name}: {_type(item, owner)}")
    lines += [f"{indent}def __init__(", f"{indent}    self,", f"{indent}    *,"]
    lines += [f"{indent}    {item.name}: {_type(item, owner)} = ...," for item in layout.fields]
    return [*lines, f"{indent}) -> None: ..."]


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
