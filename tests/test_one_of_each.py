"""What there is one of: how a task yields to the loop, how epochs are fenced, a class per error."""

import ast
import re
from collections import Counter

from support.sources import SOURCE, text_of, tree

# A job of Spark has a loop of its own, which it runs to its next pause by this.
YIELDS_ITSELF = {"pipelines"}


def lines():
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        for number, line in enumerate(text_of(path).split("\n"), 1):
            yield name, number, line


def test_tasks_yield_to_the_loop_in_one_way():
    found = {name for name, _, line in lines() if re.search(r"\bsleep\(0\)", line)}
    assert {name for name in found if name.split("/")[0] not in YIELDS_ITSELF} == {"model/steps.py"}
    assert {name.split("/")[0] for name in found} >= YIELDS_ITSELF, "none is left: shorten the list"


def test_one_place_compares_the_epochs_of_control_requests():
    """The controller epoch in the replica manager, broker epochs by `is_stale_broker_epoch`."""
    compares = re.compile(r"request\.(controller|broker)_epoch [<>]=? |[<>]=? request\.\w+_epoch\b")
    assert not [f"{name}:{n}" for name, n, line in lines() if compares.search(line)]
    sets = re.compile(r"\bcontroller_epoch = request\.|\.controller_epoch = epoch\b")
    assert {name for name, _, line in lines() if sets.search(line)} == {
        "replication/replica_manager.py"
    }


def test_one_place_replaces_files():
    """`durable_files` for the command line and jobs, the port `Files` for servers."""
    syncs = {name for name, _, line in lines() if re.search(r"\bos\.fsync\(", line)}
    assert syncs == {"model/durable_files.py", "log/files.py"}
    found = set()
    for path in sorted(SOURCE.rglob("*.py")):
        if ".replace(" not in text_of(path):
            continue
        for node in ast.walk(tree(path)):
            # Of one argument: that of a text has two.
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(), attr="replace"), args=[_], keywords=[]
                ):
                    found.add(f"{path.relative_to(SOURCE).as_posix()}: {ast.unparse(node.func)}")
    others = {
        "admin/commands/acls.py: authorizer.replace",
        "broker/lifecycle/tls_listeners.py: tls.replace",
    }
    assert found - others == {"model/durable_files.py: part.replace"}


def test_one_place_finds_what_was_likely_meant():
    found = {name for name, _, line in lines() if "get_close_matches" in line}
    assert found == {"model/printable.py"}


def test_one_place_judges_the_host_header():
    reads = {name for name, _, line in lines() if re.search(r'\bget\w*\("host"', line)}
    servers = {"console/guard.py", "net/http_server.py", "registry/application.py"}
    assert reads == servers, "by the rule of host_header"
    assert [n for n, _, line in lines() if "net.host_header import" in line] == sorted(reads)


def test_no_two_exceptions_have_one_name():
    classes = [
        (node.name.lstrip("_"), path.relative_to(SOURCE).as_posix())
        for path in SOURCE.rglob("*.py")
        if re.search(r"^class \w+Error\b", text_of(path), re.MULTILINE)
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error")
    ]
    count = Counter(name for name, _ in classes)
    assert len(classes) > 80
    assert not [(name, path) for name, path in classes if count[name] > 1]
