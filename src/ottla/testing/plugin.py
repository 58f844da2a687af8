"""Plugin of pytest: clusters as fixtures, chaos, and what happened in the report of a failure.

Who may call: pytest, by the entry point `ottla` of the group `pytest11`. Invariants: without a test
that uses it nothing but pytest is imported; a cluster that several tests share is whole when a test
begins; fixtures end what they started, also after Ctrl-C.
"""

import secrets
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.chaos import Chaos
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
_seed_key = pytest.StashKey[int]()
_kept_key = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ottla", "clusters of Ottla")
    group.addoption(
        "--ottla-brokers",
        type=int,
        default=BROKERS,
        metavar="N",
        help=f"brokers of a cluster, where no marker says it [{BROKERS}]",
    )
    group.addoption(
        "--ottla-in-process",
        action="store_true",
        help="brokers are threads, not processes, where no marker says it",
    )
    group.addoption(
        "--ottla-keep",
        action="store_true",
        help="keep the folders of clusters, with data and logs, and say where they are",
    )
    group.addoption(
        "--ottla-seed",
        type=int,
        default=None,
        metavar="N",
        help="of the fixture chaos, as a report shows it [another one each time]",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    seed = config.getoption("--ottla-seed")
    config.stash[_kept_key] = []
    config.stash[_seed_key] = secrets.randbelow(1_000_000) if seed is None else seed


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
        from ottla.testing.nemeses import repair  # noqa: PLC0415 - only when a test uses it
        from ottla.testing.sync_cluster import SyncCluster  # noqa: PLC0415 - the same

        name = repr((empty, sorted(wanted.items())))
        cluster = self._known.get(name)
        if cluster is not None:
            repair(cluster, REPAIRED_WITHIN_S)
            if empty:
                for topic in {p.rpartition("-")[0] for p in cluster.partitions()}:
                    cluster.delete_topic(topic)
            return cluster
        cluster = SyncCluster(**wanted, keep=self._config.getoption("--ottla-keep"))
        cluster.open()
        self._known[name] = cluster
        return cluster

    def close(self) -> None:
        for cluster in self._known.values():
            if self._config.getoption("--ottla-keep"):
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
        "brokers": config.getoption("--ottla-brokers"),
        "in_process": config.getoption("--ottla-in-process"),
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
def chaos(request: pytest.FixtureRequest, ottla_cluster: "SyncCluster") -> "Chaos":
    """Give nemeses for `ottla_cluster`, and a checker of what was acknowledged."""
    from ottla.testing.chaos import Chaos  # noqa: PLC0415 - only when a test uses it

    found = Chaos(ottla_cluster, request.config.stash[_seed_key])
    request.node.stash[_chaos_key] = found
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.when in ("setup", "call"):
        report.sections += _sections(item)
    return report


def _sections(item: pytest.Item) -> list[tuple[str, str]]:
    """Return what the report of a test that failed has of its cluster."""
    found = item.stash.get(_cluster_key, None)
    if found is None:
        return []
    from ottla.model.errors import OttlaError  # noqa: PLC0415 - only for a cluster
    from ottla.testing.chaos import story  # noqa: PLC0415 - the same

    cluster, since_s = found
    chaos = item.stash.get(_chaos_key, None)
    text = "the cluster is over"
    with suppress(OttlaError):
        text = story(cluster, since_s, []) if chaos is None else chaos.story()
    if chaos is not None:
        text = f"again with --ottla-seed {chaos.seed}\n{text}"
    return [(f"ottla: cluster in {cluster.dir}", text)]
