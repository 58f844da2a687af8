"""Plugin of pytest: clusters as fixtures, chaos, and what happened in the report of a failure.

Invariants: without a test that uses it nothing but pytest is imported; a cluster that several tests
share is whole when a test begins; fixtures end what they started, also after Ctrl-C.
"""

import hashlib
import os
import secrets
import shlex
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from ottla.testing.chaos import Chaos
    from ottla.testing.cluster import Cluster
    from ottla.testing.sync_cluster import SyncCluster

BROKERS = 3
SCOPES = ("function", "module", "session")
ARGUMENTS = ("brokers", "in_process", "settings", "session_timeout_ms", "scope")
"""Of the marker."""
REPAIRED_WITHIN_S = 60.0
MARKER = (
    "ottla(brokers=3, settings={}, in_process=False, session_timeout_ms=6000, scope='session'): "
    "the cluster of fixture ottla_cluster; scope: how long it lives"
)
_cluster_key = pytest.StashKey["tuple[SyncCluster, float]"]()
_chaos_key = pytest.StashKey["Chaos"]()
_passed_key = pytest.StashKey[bool]()
_kept_key = pytest.StashKey[list[str]]()

__tracebackhide__ = True


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ottla", "clusters of Ottla; each option is an ini option, too")

    def add(
        name: str, kind: Literal["string", "bool"], default: Any, text: str, **how: Any
    ) -> None:
        group.addoption(f"--ottla-{name}", default=None, help=text, **how)
        parser.addini(f"ottla_{name.replace('-', '_')}", text, kind, default)

    add(
        "brokers",
        "string",
        str(BROKERS),
        f"brokers of a cluster, where no marker says it [{BROKERS}]",
        metavar="N",
    )
    add(
        "in-process",
        "bool",
        False,
        "brokers are threads, not processes, where no marker says it",
        action="store_true",
    )
    add(
        "keep",
        "bool",
        False,
        "keep the folders of clusters, with data and logs, and say where they are",
        action="store_true",
    )
    add(
        "seed",
        "string",
        "",
        "of the session: each test's own seed for chaos comes from it [another one each time]",
        metavar="N",
    )


def _option(config: pytest.Config, name: str) -> Any:
    """Return an option of the command line, or else of the ini file."""
    given = config.getoption(f"--ottla-{name}")
    return config.getini(f"ottla_{name.replace('-', '_')}") if given is None else given


def _number(config: pytest.Config, name: str) -> int:
    text = _option(config, name)
    try:
        return int(text)
    except ValueError:
        raise pytest.UsageError(f"ottla: {name} is not an integer: {text!r}") from None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.stash[_kept_key] = []
    _number(config, "brokers")
    seed = _number(config, "seed") if _option(config, "seed") else secrets.randbelow(1_000_000)
    config.option.ottla_seed = getattr(config, "workerinput", {}).get("ottla_seed", str(seed))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give the session's seed to a worker of pytest-xdist."""
    node.workerinput["ottla_seed"] = node.config.option.ottla_seed


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for folder in config.stash[_kept_key]:
        terminalreporter.write_line(f"ottla: kept {folder}")


class _Clusters:
    """The clusters of one scope, by what they were asked to be."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._known: dict[str, SyncCluster] = {}

    def get(self, wanted: dict[str, Any], *, empty: bool) -> "SyncCluster":
        """Return the cluster that is so, whole; start it if there is none.

        `empty`: one whose topics are deleted before another test gets it.
        """
        from ottla.testing.nemeses import repair  # only when a test uses it
        from ottla.testing.sync_cluster import SyncCluster

        name = repr((empty, sorted(wanted.items())))
        cluster = self._known.get(name)
        if cluster is not None:
            repair(cluster, REPAIRED_WITHIN_S)
            if empty:
                cluster.stop_schema_registry()
                for topic in {p.rpartition("-")[0] for p in cluster.partitions()}:
                    cluster.delete_topic(topic)
            return cluster
        cluster = SyncCluster(**wanted, keep=_option(self._config, "keep"))
        cluster.open()
        self._known[name] = cluster
        return cluster

    def close(self) -> None:
        for cluster in self._known.values():
            if _option(self._config, "keep"):
                self._config.stash[_kept_key].append(str(cluster.dir))
            cluster.close()


def _clusters(config: pytest.Config) -> Iterator[_Clusters]:
    clusters = _Clusters(config)
    try:
        yield clusters
    finally:
        clusters.close()


@pytest.fixture(scope="session")
def _ottla_session(pytestconfig: pytest.Config) -> Iterator[_Clusters]:
    yield from _clusters(pytestconfig)


@pytest.fixture(scope="module")
def _ottla_module(pytestconfig: pytest.Config) -> Iterator[_Clusters]:
    yield from _clusters(pytestconfig)


@pytest.fixture
def _ottla_function(pytestconfig: pytest.Config) -> Iterator[_Clusters]:
    yield from _clusters(pytestconfig)


def _by_options(config: pytest.Config) -> dict[str, Any]:
    return {
        "brokers": _number(config, "brokers"),
        "in_process": _option(config, "in-process"),
    }


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest) -> "SyncCluster":
    """Give a cluster as the nearest marker `ottla` wants it, whole and without topics.

    By default it lives until the last test (`scope="session"`), and tests with the same marker
    share it, one after the other. A `SyncCluster`; Kafka's clients connect to its `bootstrap`.
    """
    marker = request.node.get_closest_marker("ottla")
    given = marker.kwargs if marker else {}
    for name in given:
        if name not in ARGUMENTS:
            known = ", ".join(ARGUMENTS)
            raise pytest.UsageError(f"marker ottla: it has no argument {name}, but {known}")
    wanted = {**_by_options(request.config), **given}
    scope = wanted.pop("scope", "session")
    if scope not in SCOPES:
        raise pytest.UsageError(f"marker ottla: scope={scope!r} is none of {', '.join(SCOPES)}")
    if marker and marker.args:
        raise pytest.UsageError("marker ottla: name its arguments, as in brokers=3")
    clusters: _Clusters = request.getfixturevalue(f"_ottla_{scope}")
    cluster = clusters.get(wanted, empty=True)
    request.node.stash[_cluster_key] = (cluster, cluster.age_s)
    return cluster


@pytest.fixture(scope="module")
def ottla_cluster_module(_ottla_module: _Clusters, pytestconfig: pytest.Config) -> "SyncCluster":
    """Give a cluster for fixtures of the scope `module`, with brokers as the options say."""
    return _ottla_module.get(_by_options(pytestconfig), empty=False)


@pytest.fixture(scope="session")
def ottla_cluster_session(_ottla_session: _Clusters, pytestconfig: pytest.Config) -> "SyncCluster":
    """Give a cluster for fixtures of the scope `session`, with brokers as the options say."""
    return _ottla_session.get(_by_options(pytestconfig), empty=False)


@pytest.fixture
def kafka_bootstrap(ottla_cluster: "SyncCluster") -> str:
    """Give the addresses of `ottla_cluster`, for `bootstrap.servers`."""
    return ottla_cluster.bootstrap


@pytest.fixture
def ottla_cluster_async(ottla_cluster: "SyncCluster") -> "Cluster":
    """Give `ottla_cluster` to an asynchronous test: a `Cluster`, whose methods it awaits."""
    from ottla.testing.cluster import Cluster  # only when a test uses it

    return Cluster.using(ottla_cluster)


@pytest.fixture
def chaos(request: pytest.FixtureRequest, ottla_cluster: "SyncCluster") -> Iterator["Chaos"]:
    """Give nemeses for `ottla_cluster`, and a checker of what was acknowledged.

    Its seed comes from the session's (`--ottla-seed`) and the test's id. A test that reports
    acknowledgements and does not check them fails.
    """
    from ottla.testing.chaos import Chaos  # only when a test uses it

    found = Chaos(ottla_cluster, _seed_of(request.node))
    request.node.stash[_chaos_key] = found
    yield found
    if found.unchecked and request.node.stash.get(_passed_key, False):
        pytest.fail(
            f"{found.unchecked} acknowledged records were not compared: call chaos.check()", False
        )


def _seed_of(item: pytest.Item) -> int:
    """Return a test's own seed, the same in whichever order and worker the tests run."""
    text = f"{item.config.option.ottla_seed} {_id_of(item)}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])


def _id_of(item: pytest.Item) -> str:
    # Not item.nodeid: pytest-xdist adds to it with --dist loadgroup.
    return f"{item.parent.nodeid}::{item.name}" if item.parent else item.nodeid


def _command(item: pytest.Item) -> str:
    """Return what a user types to have a test's chaos again."""
    config = item.config
    words = ["pytest"]
    if config.option.inifilename:
        words += ["-c", config.option.inifilename]
    if config.option.rootdir:
        words += ["--rootdir", config.option.rootdir]
    if config.option.ottla_brokers is not None:
        words += ["--ottla-brokers", config.option.ottla_brokers]
    if config.option.ottla_in_process:
        words.append("--ottla-in-process")
    file = os.path.relpath(item.path, config.invocation_params.dir)
    name = _id_of(item).partition("::")[2]
    words += ["--ottla-seed", config.option.ottla_seed, f"{file}::{name}"]
    return shlex.join(words)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        item.stash[_passed_key] = report.passed
    if report.failed:
        report.sections += _sections(item)
    return report


def _sections(item: pytest.Item) -> list[tuple[str, str]]:
    """Return what the report of a test that failed has of its cluster."""
    found = item.stash.get(_cluster_key, None)
    if found is None:
        return []
    from ottla.model.errors import OttlaError  # only for a cluster
    from ottla.testing.chaos import story

    cluster, since_s = found
    chaos = item.stash.get(_chaos_key, None)
    try:
        text = story(cluster, since_s, []) if chaos is None else chaos.story()
    except OttlaError:
        return []  # the cluster is over
    if chaos is not None:
        text = f"again with: {_command(item)}\n{text}"
    # The folder of one that is not kept is gone when the report is read.
    where = f" in {cluster.dir}" if _option(item.config, "keep") else ""
    return [(f"ottla: cluster{where}", text)]
