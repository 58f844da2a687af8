"""Rules for the source: module docstrings, rooms in the docs, no dead files, shrinking lengths."""

import ast
import functools
import gc
import re
from pathlib import Path

import pytest

from support.sources import SOURCE, imported, nodes, text_of, tree

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(p for p in SOURCE.rglob("*.py") if p.stat().st_size)
ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"

# A file that is longer has more than one subject. Do not cut one subject in two to stay below it.
LONGEST_MODULE = 900
# These only ever go down: lower them when the longest one gets shorter.
LONGEST_FUNCTION = 92
MOST_FIELDS = 41
# What users copy: loaded from their copy, not imported.
COPIED = "pipelines/declarative/project/"
# Tables of facts are long by nature.
TABLES = {"model/config_keys.py"}

WORLDLY = {
    "asyncio", "socket", "ssl", "threading", "time", "random", "os", "pathlib",
    "kazoo", "pyspark", "subprocess", "datetime",
}  # fmt: skip
# A decider may log: nothing that it decides depends on it.
# Modules that call themselves pure and reach the world by an import: for a type, a name of a fault,
# a date's text or the terminal's width.
PURE_BUT_FOR_IMPORTS = {
    "admin/operations/record_format.py",
    "admin/replica_files/checks.py", "admin/replica_files/compare.py",
    "admin/replica_files/judge.py", "admin/replica_files/replica.py",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _no_collections():
    """Hold the collector: it would look at all trees again and again, 2 s each time."""
    gc.disable()
    yield
    gc.enable()


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def test_module_docstring():
    docs = {name(path): ast.get_docstring(tree(path)) or "" for path in MODULES}
    short = [module for module, doc in docs.items() if len(doc) < 20]
    assert not short, f"no docstring says what lives in {short}"


def test_lengths_only_ratchet_down():
    paths = [path for path in MODULES if name(path) not in TABLES]
    long = [name(path) for path in paths if text_of(path).count("\n") > LONGEST_MODULE]
    assert not long, f"have grown too long, split them: {long}"
    found = {
        f"{name(path)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in paths
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(found) > 5000
    long = {function: lines for function, lines in found.items() if lines > LONGEST_FUNCTION}
    assert not long, f"lines of functions: {long}"


def fields(node: ast.ClassDef) -> set[str]:
    """Return what objects of a class hold: annotated names, and what methods assign to `self`."""
    found = {
        n.target.id
        for n in node.body
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.ctx, ast.Store)
            and isinstance(inner.value, ast.Name)
            and inner.value.id == "self"
        ):
            found.add(inner.attr)
    return found


def test_numbers_of_fields_only_ratchet_down():
    found = {
        f"{name(path)}:{node.name}": len(fields(node))
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
    }
    assert len(found) > 1000
    many = {kind: count for kind, count in found.items() if count > MOST_FIELDS}
    assert not many, f"numbers of fields: {many}"


CONSTRUCTORS = {"__init__", "__new__", "__post_init__"}
# Bases without fields of their own; other bases that are not ours may make any.
EMPTY_BASES = {"Protocol", "Generic", "ABC", "object", "Exception"}


def test_fields_are_made_in_the_constructor():
    """Else a method called too early ends in an AttributeError, and mypy does not see it."""
    all_classes = [
        (name(path), node)
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and not name(path).startswith("pipelines/")
    ]
    by_name = {node.name: node for _, node in all_classes}

    def made(kind: ast.ClassDef) -> set[str] | None:
        """Return what the constructors and bodies of a class and its bases name; None: unknown."""
        found: set[str] = set()
        here: list[ast.stmt] = []
        for node in kind.body:
            if (
                not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                or node.name in CONSTRUCTORS
            ):
                here.append(node)
            else:
                found.add(node.name)  # it may be a property with a setter
            if isinstance(node, ast.Assign):
                found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        found |= fields(ast.ClassDef(kind.name, [], [], here, []))
        for base in kind.bases:
            known = ast.unparse(base).split("[")[0].split(".")[-1]
            if known in EMPTY_BASES:
                continue
            more = made(by_name[known]) if known in by_name else None
            if more is None:
                return None
            found |= more
        return found

    late = {}
    for module, node in all_classes:
        known = made(node)
        if known is not None and (rest := fields(node) - known):
            late[f"{module}:{node.name}"] = sorted(rest)
    assert not late, f"fields that are not made in __init__: {late}"


def module_path(dotted: str) -> Path | None:
    """Return the file of a module of ours, None for a package or for what is not ours."""
    if not dotted.startswith("ottla."):
        return None
    path = SOURCE.joinpath(*dotted.split(".")[1:]).with_suffix(".py")
    return path if path.exists() else None


@functools.cache
def at_run_time(path: Path) -> frozenset[str]:
    """Return what a module imports when it runs: at its top or in a function, not for types."""
    found: set[str] = set()
    todo: list[ast.AST] = [tree(path)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        todo += (n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.expr))
    return frozenset(found)


def ways_out(decider: str) -> list[str]:
    """Return how a module reaches the world, through all that it imports."""
    found: list[str] = []
    seen = {decider: decider}
    todo = [decider]
    while todo:
        here = todo.pop()
        imports = at_run_time(SOURCE / here)
        worldly = sorted({module.split(".")[0] for module in imports} & WORLDLY)
        if worldly:
            found.append(f"{seen[here]} imports {', '.join(worldly)}")
        for module in sorted(imports):
            path = module_path(module)
            if path is not None and name(path) not in seen:
                seen[name(path)] = f"{seen[here]} -> {name(path)}"
                todo.append(name(path))
    return found


def test_what_calls_itself_a_decider_or_pure_touches_no_world():
    """The module's docstring is the marker."""
    says = re.compile(r"\b[Aa] decider\b|\b(P|A p)ure(?!,? but)\b|Invariants: pure\b")
    docs = {name(path): ast.get_docstring(tree(path)) or "" for path in MODULES}
    deciders = {m for m, doc in docs.items() if says.search(doc) and not m.endswith("__init__.py")}
    assert len(deciders) > 100
    impure = {module: ways for module in deciders if (ways := ways_out(module))}
    wrong = {module: impure.get(module) for module in impure.keys() ^ PURE_BUT_FOR_IMPORTS}
    assert not wrong, "\n".join(map(str, wrong.items()))


def test_kazoo_only_in_tests_and_pyspark_in_one_room():
    for path in MODULES:
        roots = {module.split(".")[0] for module in imported(path)}
        assert "kazoo" not in roots, name(path)
        # The demo's program is run by its path, as a user's own is.
        if not name(path).startswith(("pipelines/", "admin/demo/flights_job.py")):
            assert "pyspark" not in roots, name(path)


def test_brokers_take_locks_from_their_ports():
    """The simulator sees a lock that comes from the port Files: `mutex` or `worker_lock`.

    A worker's call that stopped with another one held would stop the whole simulation for ever.
    """
    threads = {"threading", "_thread", "queue", "multiprocessing", "concurrent.futures"}
    own = {
        "log/files.py", "net/runtime.py", "zookeeper/embedded.py",
        "model/waits.py",  # watches only where a command asked for it
        "sim/scenarios/search.py",  # waits for processes that simulate; is in none itself
    }  # fmt: skip
    found = {
        name(path)
        for path in MODULES
        if imported(path) & threads
        and not name(path).startswith(("pipelines/", "admin/", "testing/"))
    }
    assert found == own, "a lock comes from `world.files.mutex()`, a thread from `world.workers`"


def test_no_vague_names():
    vague = {"utils", "common", "helpers", "misc", "util", "helper"}
    assert not [name(p) for p in MODULES if p.stem in vague]


def test_every_room_is_in_the_architecture():
    text = ARCHITECTURE.read_text(encoding="utf-8")
    rooms = sorted(p.name for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__")
    missing = [room for room in rooms if f"`{room}`" not in text]
    assert not missing, f"docs/ARCHITECTURE.md does not mention {missing}"


# Modules that only tests use, with the reason why they stay.
KNOWN_DEAD_MODULES = {
    "testing/plugin.py",  # an entry point of pytest
    "pipelines/progress.py",  # users' programs import it
}


def test_no_dead_modules():
    """A module that no other imports and that nothing starts is dead, whatever tests it has."""
    entry = re.compile(r"__(init|main)__$")
    used = {f"ottla.{module}" for module, _ in COMMANDS}
    for path in MODULES:
        for module in imported(path):
            used.add(module)
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                used |= {f"{node.module}.{alias.name}" for alias in node.names}
    texts = " ".join(p.read_text(encoding="utf-8") for p in MODULES)
    dead = set()
    for path in MODULES:
        dotted = "ottla." + name(path).removesuffix(".py").replace("/", ".")
        if entry.search(dotted) or dotted in used or name(path).startswith(COPIED):
            continue
        if f'"{dotted}"' in texts or dotted.startswith("ottla.wire.messages."):
            continue  # loaded by name
        if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8"):
            continue  # a program of its own: python -m
        dead.add(name(path))
    assert not dead - KNOWN_DEAD_MODULES, f"nobody imports {sorted(dead - KNOWN_DEAD_MODULES)}"
    assert not KNOWN_DEAD_MODULES - dead, f"in use again: {sorted(KNOWN_DEAD_MODULES - dead)}"


# `module:function` of each command.
COMMANDS = re.findall(
    r"  +([\w.]+):(\w+)  ", (SOURCE / "cli" / "commands.txt").read_text(encoding="utf-8")
)


# Functions and classes that nothing in src uses, with the reason why they stay.
KNOWN_DEAD = {
    # To be removed, or used, by whoever works on the room.
    "model/time_slices.py": {"run_in_time_slices"},
    "wire/apis.py": {"is_flexible"},
    "zookeeper/embedded.py": {"stop_pid"},
    # The configuration of a topic without a broker, for tests.
    "model/config.py": {"default_topic_config"},
    # Found by their names in the table of faults.
    # Faults and short ways for tests.
    "sim/world.py": {"simulate"},
    "zookeeper/memory.py": {"disconnect"},
    # What old administrators' tools and JVM brokers write into ZooKeeper; stories do the same.
    "zookeeper/cluster.py": {"create_reassignment", "create_preferred_election"},
    "zookeeper/states.py": {"get_one"},
    # One class for each of ZooKeeper's codes, found as subclasses.
    "zookeeper/errors.py": {"*"},
    # What users call from their own programs.
    "pipelines/sink/data_source.py": {"streamWriter"},
    "pipelines/progress.py": {"LagListener"},
    "testing/chaos.py": {"during"},
    # Found by pytest.
    "testing/plugin.py": {"*"},
}  # fmt: skip
PLAIN_DECORATORS = {
    "property", "staticmethod", "classmethod", "override", "final", "overload",
    "cache", "cached_property", "lru_cache", "contextmanager", "asynccontextmanager", "dataclass",
}  # fmt: skip


def decorated(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Return whether a decorator may register it somewhere."""
    names = [re.split(r"[(]", ast.unparse(d))[0].split(".")[-1] for d in node.decorator_list]
    return any(n not in PLAIN_DECORATORS for n in names)


def definitions(path: Path) -> set[str]:
    """Return names of functions and classes that somebody has to use by name.

    Not those that a class of another library calls: methods of its subclasses.
    """
    found: set[str] = set()

    def visit(node: ast.AST, ours: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if ours and not child.name.startswith("__") and not decorated(child):
                    found.add(child.name)
                if isinstance(child, ast.ClassDef):
                    bases = {ast.unparse(b).split("[")[0] for b in child.bases}
                    visit(child, bases <= our_bases())
                else:
                    visit(child, True)
            elif not isinstance(child, ast.expr):  # nothing is defined in one
                visit(child, ours)

    visit(tree(path), True)
    return found


@functools.cache
def our_bases() -> frozenset[str]:
    """Return the names of bases whose methods nobody else calls."""
    known = {"Exception", "Protocol", "NamedTuple", "Generic", "msgspec.Struct", "TypedDict"}
    for path in MODULES:
        known |= {node.name for node in nodes(path) if isinstance(node, ast.ClassDef)}
    return frozenset(known)


@functools.cache
def used_names() -> frozenset[str]:
    """Return every name that src reads, and the words of texts that may be names."""
    found = {function for _, function in COMMANDS}
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.fullmatch(r"[\w.:]+", node.value)
            ):  # found by name, as in getattr
                found |= set(re.split(r"[.:]", node.value))
    return frozenset(found)


def test_no_dead_functions():
    """Whatever is defined in src is used in src; a test is no user. Names are compared, no types.

    So something dead is missed if another thing in use has its name.
    """
    used = used_names()
    dead = {}
    for path in MODULES:
        if not name(path).startswith((COPIED, "wire/messages/")):
            known = KNOWN_DEAD.get(name(path), set())
            unused = definitions(path) - used
            if "*" in known:
                continue
            if unused - known:
                dead[name(path)] = sorted(unused - known)
            assert not known - unused, f"{name(path)}: in use again: {sorted(known - unused)}"
    assert not dead, f"nothing in src uses {dead}"


def test_rules_named_in_code_are_in_the_docs():
    """R and F numbers name rules and faults of docs/RELIABILITY.md."""
    text = (ROOT / "docs" / "RELIABILITY.md").read_text(encoding="utf-8")
    known = set(re.findall(r"\b([RF]\d{1,2})\b", text))
    named: dict[str, str] = {}
    for path in MODULES:
        body = path.read_text(encoding="utf-8")
        for number in re.findall(r"\b(?:rule|rules|fault|faults) ([RF]\d{1,2})\b", body):
            named[number] = name(path)
    missing = {k: v for k, v in named.items() if k not in known}
    assert not missing, f"not in docs/RELIABILITY.md: {missing}"


def test_no_registry_hosts_in_files():
    """Packages are installed by name; a host would break a machine with another mirror."""
    hosts = re.compile(r"(repo1?\.maven|repo\.maven|pypi\.org|files\.pythonhosted|deb\.debian)")
    for folder in ("src", "scripts", ".ci", "tests", "benchmarks", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in {"", ".py", ".xml", ".md", ".sh", ".txt"}:
                if path == Path(__file__).resolve():
                    continue
                found = hosts.search(path.read_text(encoding="utf-8", errors="replace"))
                assert not found, f"{path} names {found}"
