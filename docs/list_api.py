"""Writes docs/API.md: the Python API for tests, from its docstrings and signatures.

PYTHONPATH=src python docs/list_api.py
"""

import inspect
import re
from pathlib import Path
from typing import Any

from ottla.testing import plugin
from ottla.testing.chaos import Chaos
from ottla.testing.checking import Checked
from ottla.testing.cluster import Cluster
from ottla.testing.nemeses import NEMESES
from ottla.testing.sync_cluster import SyncCluster

PAGE = Path(__file__).parent / "API.md"
INTRODUCTION = """\
# The Python API

Written by `python docs/list_api.py` from the docstrings; do not edit. [TESTING_YOUR_APPLICATION.md](TESTING_YOUR_APPLICATION.md) shows how it is used. What is not here is not for
programs outside Ottla, and may change.

`import ottla` gives `ottla.Cluster` and `ottla.SyncCluster`; it imports them at their first use. All errors are `ottla.model.errors.OttlaError`: one line.
A `Target` is the id of a broker, or `"all"`, `"brokers"`, `"clients"` or `"zookeeper"`.
"""
FIXTURES = (
    "ottla_cluster",
    "ottla_cluster_module",
    "ottla_cluster_session",
    "kafka_bootstrap",
    "ottla_cluster_async",
    "chaos",
)


def signature(function: Any) -> str:
    """Return a signature without `self`, and with short names of types."""
    text = (
        str(inspect.signature(function))
        .replace("(self, /, ", "(")
        .replace("(self, ", "(")
        .replace("(self)", "()")
    )
    text = re.sub(r"\b(?:[a-z_]+\.)+([A-Z]\w+)", r"\1", text)
    text = re.sub(r"(?:Union\[int, (Literal\[[^]]*\])\]|int \| Literal\[[^]]*\])", "Target", text)
    text = re.sub(r"Union\[int, Literal\[[^]]*\], Iter", "Union[Target, Iter", text)
    text = text.replace("Union[Target, Iterable[Target]]", "Target | Iterable[Target]")
    return re.sub(r" -> '?([^']*)'?$", r" -> \1", text).removesuffix(" -> None")


def documented(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def members(kind: type) -> list[str]:
    """Return the public properties and methods of a class, in the order of its source."""
    lines: list[str] = []
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            lines += [f"- **`{name}`** {documented(member)}"]
        elif callable(member):
            word = "await " if inspect.iscoroutinefunction(member) else ""
            function = inspect.unwrap(member)
            lines += [f"- **`{word}{name}{signature(function)}`** {documented(member)}"]
    return [line.replace("\n\n", " ").replace("\n", " ") for line in lines]


def section(title: str, kind: type, *, constructor: bool = True) -> list[str]:
    head = f"`{title}{signature(kind.__init__)}`" if constructor else f"`{title}`"
    return [f"## {title}", "", head, "", documented(kind), "", *members(kind), ""]


def page() -> str:
    lines = [INTRODUCTION]
    lines += section("ottla.SyncCluster", SyncCluster)
    lines += section("ottla.Cluster", Cluster)
    lines += ["## Fixtures", ""]
    for name in FIXTURES:
        text = documented(getattr(plugin, name)).replace("\n\n", " ").replace("\n", " ")
        lines.append(f"- **`{name}`** {text}")
    lines += ["", f"Marker: `{plugin.MARKER.partition(': ')[0]}`", ""]
    lines += section("Chaos", Chaos)
    lines += ["### Nemeses", ""]
    lines += [f"- **`{name}`** {documented(function)}" for name, function in NEMESES.items()]
    lines += ["", *section("Checked", Checked, constructor=False)]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
