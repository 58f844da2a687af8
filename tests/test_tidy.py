"""Keeps the house tidy: door plates, rooms in the docs, no dead files, lengths that only shrink."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "ottla"
MODULES = sorted(p for p in SOURCE.rglob("*.py") if p.stat().st_size)
ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"

# These only ever go down: lower them when the longest one gets shorter.
LONGEST_MODULE = 700
LONGEST_FUNCTION = 110
# What users copy: loaded from their copy, not imported.
COPIED = "pipelines/declarative/project/"
# Tables of facts are long by nature.
TABLES = {"model/config_keys.py"}

DECIDERS = {
    "model/descriptors.py",
    "net/framing.py",
    "log/damage.py",
    "log/epochs.py",
    "log/producers.py",
    "log/validate.py",
    "log/retention.py",
    "log/compaction.py",
    "log/cleaner_batches.py",
    "replication/damage.py",
    "pipelines/auditing/judging.py",
    "pipelines/drilling/cells.py",
    "pipelines/drilling/joining.py",
    "pipelines/drilling/page.py",
    "pipelines/drilling/reasons.py",
    "pipelines/lagging/rules.py",
    "pipelines/landing/delta_actions.py",
    "pipelines/rebalancing/byte_goal.py",
    "pipelines/rebalancing/deciding.py",
    "pipelines/rebalancing/hard_goals.py",
    "pipelines/rebalancing/leaders.py",
    "pipelines/rebalancing/placement.py",
    "pipelines/rebalancing/problem.py",
    "pipelines/rebalancing/scoring.py",
    "pipelines/rebalancing/seen.py",
    "pipelines/rebalancing/staging.py",
    "pipelines/rebalancing/topic_goal.py",
    "pipelines/replaying/comparing.py",
    "pipelines/replaying/origins.py",
    "pipelines/replaying/plan.py",
    "pipelines/replaying/translating.py",
    "pipelines/timeline/clocks.py",
    "pipelines/timeline/facts.py",
    "pipelines/timeline/findings.py",
    "pipelines/timeline/forms.py",
    "pipelines/timeline/history.py",
    "pipelines/timeline/terms.py",
    "replication/isr.py",
    "replication/throttle.py",
    "replication/truncation.py",
    "replication/fetch_session.py",
    "controller/context.py",
    "controller/states.py",
    "controller/elections.py",
    "controller/eligible.py",
    "controller/plan.py",
    "controller/leadership.py",
    "controller/placement.py",
    "controller/balance.py",
    "controller/batch.py",
    "controller/events.py",
    "controller/incarnations.py",
    "controller/isr_changes.py",
    "controller/targets.py",
    "controller/state_log.py",
    "explain/lines.py",
    "explain/picture.py",
    "explain/causes.py",
    "explain/rules.py",
    "explain/story.py",
    "explain/again.py",
    "coordinators/group.py",
    "coordinators/group_records.py",
    "coordinators/group_states.py",
    "coordinators/group_values.py",
    "coordinators/groups.py",
    "coordinators/offsets.py",
    "coordinators/timers.py",
    "coordinators/transaction.py",
    "coordinators/transaction_records.py",
    "coordinators/transaction_states.py",
    "coordinators/transactions.py",
}
WORLDLY = {
    "asyncio", "socket", "ssl", "threading", "time", "random", "os", "pathlib",
    "kazoo", "pyspark", "subprocess", "datetime",
}  # fmt: skip


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_door_plate(path):
    doc = ast.get_docstring(tree(path))
    assert doc, f"{name(path)} has no docstring saying what lives here"
    assert len(doc) >= 20


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_lengths_only_ratchet_down(path):
    if name(path) in TABLES:
        return
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LONGEST_MODULE, f"{name(path)} has grown too long: split it"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{name(path)}:{node.name} has {length} lines"


def test_deciders_touch_no_world():
    missing = sorted(d for d in DECIDERS if not (SOURCE / d).exists())
    assert not missing, f"deciders that are gone; update the list: {missing}"
    for decider in sorted(DECIDERS):
        roots = {module.split(".")[0] for module in imported(SOURCE / decider)}
        assert not roots & WORLDLY, f"{decider} imports {sorted(roots & WORLDLY)}"


def test_kazoo_only_in_tests_and_pyspark_in_one_room():
    for path in MODULES:
        roots = {module.split(".")[0] for module in imported(path)}
        assert "kazoo" not in roots, name(path)
        if not name(path).startswith("pipelines/"):
            assert "pyspark" not in roots, name(path)


def test_no_vague_names():
    vague = {"utils", "common", "helpers", "misc", "util", "helper"}
    assert not [name(p) for p in MODULES if p.stem in vague]


def test_every_room_is_in_the_architecture():
    text = ARCHITECTURE.read_text(encoding="utf-8")
    rooms = sorted(p.name for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__")
    missing = [room for room in rooms if f"`{room}`" not in text]
    assert not missing, f"docs/ARCHITECTURE.md does not mention {missing}"


def test_no_dead_modules():
    """A module nobody imports and nothing starts is dead."""
    entry = re.compile(r"__(init|main)__$")
    used: set[str] = set()
    for path in [*MODULES, *sorted((ROOT / "tests").rglob("*.py"))]:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                used.add(node.module)
                used |= {f"{node.module}.{alias.name}" for alias in node.names}
    texts = " ".join(p.read_text(encoding="utf-8") for p in MODULES)
    dead = []
    for path in MODULES:
        dotted = "ottla." + name(path).removesuffix(".py").replace("/", ".")
        if entry.search(dotted) or dotted in used or name(path).startswith(COPIED):
            continue
        if f'"{dotted}"' in texts or dotted.startswith("ottla.wire.messages."):
            continue  # loaded by name
        dead.append(dotted)
    assert not dead, f"nobody imports {dead}"


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
