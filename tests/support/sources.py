"""The sources as syntax trees, for the tests that hold their rules: each file is parsed once.

To parse all of src takes seconds, and so does `ast.walk`: nodes are kept as one tuple per file.
"""

import ast
import gc
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "ottla"


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file. Trees have no cycles: the collector does not look at them.

    With it, the trees that are there are looked at again and again while others are made.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text_of(path))
    finally:
        if collects:
            gc.enable()


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file, in the order of `ast.walk`."""
    return tuple(ast.walk(tree(path)))


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the modules that a file names in its imports, those for types as well."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return frozenset(found)
