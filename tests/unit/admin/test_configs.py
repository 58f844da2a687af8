"""Settings changed one by one, also where only AlterConfigs is served; throttles taken away."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.admin.commands.configs import Whose, _alter_quotas, _alter_settings, _hint
from ottla.client import configs, reassignments
from ottla.model.errors import ConnectionLostError, OttlaError, UnsupportedVersionError
from ottla.model.throttle_settings import LEADER_RATE, THROTTLED_REPLICAS
from support.fake_client import FakeClient


def setting(key, value, source):
    return SimpleNamespace(
        name=key,
        value=value,
        config_source=source,
        config_type=2,
        read_only=False,
        is_sensitive=False,
        synonyms=[],
    )


class Cluster(FakeClient):
    """A client of brokers that know DescribeConfigs, AlterConfigs and, if told so, its sister."""

    def __init__(self, *, incremental):
        self.incremental = incremental
        self.settings = {(2, "t"): {"a": "1", "b": "2"}, (4, "0"): {}, (4, "1"): {}}
        self.asked = []
        self.silent = set()

    async def call(self, request, broker=None, *, timeout_s=None, **_):
        kind = type(request).__name__
        self.asked.append((kind, broker))
        if broker in self.silent:
            raise ConnectionLostError("no answer in time")
        if kind == "IncrementalAlterConfigsRequest" and not self.incremental:
            raise UnsupportedVersionError("api 44 is not served")
        if kind == "DescribeConfigsRequest":
            return SimpleNamespace(results=[self.described(r) for r in request.resources])
        resource = request.resources[0]
        known = self.settings.get((resource.resource_type, resource.resource_name))
        if known is None:
            return SimpleNamespace(
                responses=[SimpleNamespace(error_code=3, error_message="gone.")],
            )
        if not request.validate_only:
            if kind == "AlterConfigsRequest":
                known.clear()
            for config in resource.configs:
                if getattr(config, "config_operation", configs.SET) == configs.DELETE:
                    known.pop(config.name, None)
                else:
                    known[config.name] = config.value
        return SimpleNamespace(responses=[SimpleNamespace(error_code=0, error_message=None)])

    def described(self, resource):
        name = resource.resource_name
        known = self.settings.get((resource.resource_type, name))
        if known is None:
            return SimpleNamespace(error_code=3, error_message=None, resource_name=name)
        source = 1 if resource.resource_type == configs.TOPIC else 2
        found = [setting(k, v, source) for k, v in known.items()]
        found.append(setting("c", "9", 5))
        return SimpleNamespace(error_code=0, configs=found, resource_name=name)

    async def metadata(self, topics):
        partitions = [SimpleNamespace(partition_index=0, replica_nodes=[0, 1])]
        return SimpleNamespace(
            brokers=[SimpleNamespace(node_id=b, rack=None) for b in (1, 0)],
            topics=[
                SimpleNamespace(name=t, error_code=0, partitions=partitions) for t in topics or ()
            ],
        )


@pytest.mark.parametrize("incremental", [True, False])
def test_only_what_is_named_changes(incremental):
    cluster = Cluster(incremental=incremental)

    async def run():
        await configs.alter(cluster, configs.TOPIC, "t", {"x": "3"}, ["a"], validate_only=True)
        assert cluster.settings[2, "t"] == {"a": "1", "b": "2"}
        await configs.alter(cluster, configs.TOPIC, "t", {"x": "3"}, ["a"])

    asyncio.run(run())
    assert cluster.settings[2, "t"] == {"b": "2", "x": "3"}


def test_a_thousand_topics_take_few_requests():
    cluster = Cluster(incremental=True)
    names = [f"t-{n}" for n in range(1000)]
    cluster.settings |= {(configs.TOPIC, name): {"a": name} for name in names}
    found = asyncio.run(configs.own_of_topics(cluster, [*names, "t"]))
    assert found == {name: {"a": name} for name in names} | {"t": {"a": "1", "b": "2"}}
    assert len(cluster.asked) == 11


def test_a_topic_that_is_deleted_meanwhile_is_left_out_after_the_controller_was_asked():
    cluster = Cluster(incremental=True)
    found = asyncio.run(configs.own_of_topics(cluster, ["gone", "t"]))
    assert found == {"t": {"a": "1", "b": "2"}}
    assert [broker for _, broker in cluster.asked] == [None, configs.CONTROLLER]


def test_a_brokers_settings_are_never_written_back():
    """Its passwords are not shown: writing back what is shown would lose them."""
    cluster = Cluster(incremental=False)
    with pytest.raises(UnsupportedVersionError):
        asyncio.run(configs.alter(cluster, configs.BROKER, "0", {"x": "3"}))
    assert ("AlterConfigsRequest", 0) not in cluster.asked
    assert cluster.asked == [("IncrementalAlterConfigsRequest", 0)], "asked of that broker"


def test_a_refusal_has_the_brokers_words_and_kafkas_name():
    with pytest.raises(OttlaError, match=r"gone \(UNKNOWN_TOPIC_OR_PARTITION\)"):
        asyncio.run(configs.alter(Cluster(incremental=True), configs.TOPIC, "nosuch", {"x": "1"}))


def test_throttles_go_from_all_that_answer():
    cluster = Cluster(incremental=True)
    rate, replicas = LEADER_RATE, THROTTLED_REPLICAS[1]
    cluster.settings[4, "0"] = {rate: "5", "kept": "1"}
    cluster.settings[4, "1"] = {rate: "5"}
    cluster.settings[2, "t"][replicas] = "0:1"
    cluster.silent = {1}
    cleared = asyncio.run(reassignments.clear_throttles(cluster, ["t"]))
    assert cleared == ([0], ["t"], [1]), "broker 1 does not respond"
    assert cluster.settings[4, "0"] == {"kept": "1"}
    assert cluster.settings[2, "t"] == {"a": "1", "b": "2"}


TOPIC_T = Whose(configs.TOPIC, "t", {})


def change(cluster, *changes, dry_run=False, target=TOPIC_T):
    return asyncio.run(_alter_settings(cluster, target, changes, dry_run=dry_run))


def test_a_dry_run_is_checked_and_changes_nothing():
    cluster = Cluster(incremental=True)
    wanted = configs.Change(configs.SET, "a", "9")
    assert change(cluster, wanted, dry_run=True)["a"] == "1", "what it was is told"
    assert cluster.asked[-1] == ("IncrementalAlterConfigsRequest", None)
    assert cluster.settings[2, "t"]["a"] == "1"
    assert change(cluster, wanted)["a"] == "1"
    assert cluster.settings[2, "t"]["a"] == "9"


def test_what_is_not_set_is_not_deleted():
    """A slip of the keyboard would else be told as a success; nothing of the command is done."""
    cluster = Cluster(incremental=True)
    both = configs.Change(configs.DELETE, "a"), configs.Change(configs.DELETE, "c")
    with pytest.raises(OttlaError, match=r"c is not set on topic t; .*: a, b"):
        change(cluster, *both)
    assert cluster.settings[2, "t"] == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("setting", "operation", "way_out"),
    [
        ({"read_only": True}, configs.SET, "change it in server.properties"),
        ({"config_type": 5}, configs.APPEND, "k is not a list: use --set"),
        ({"config_type": 5}, configs.SET, "k is of type long"),
        ({"config_type": 2}, configs.SET, None),
        ({"config_type": 7}, configs.SUBTRACT, "k is of type list"),
    ],
)
def test_a_refusal_comes_with_the_way_out(setting, operation, way_out):
    facts = {"type": configs.TYPES[setting.get("config_type", 2)], "read_only": False} | setting
    told = _hint(configs.Change(operation, "k", "v"), {"k": SimpleNamespace(**facts)})
    assert told == way_out or way_out in told


def test_a_name_nearly_right_is_guessed():
    known = {"retention.ms": None, "segment.ms": None}
    assert "did you mean retention.ms?" in _hint(configs.Change(0, "retentoin.ms", "1"), known)
    assert _hint(configs.Change(0, "something.else", "1"), known) is None


class Quotas(FakeClient):
    """A client of a broker that keeps quotas of one user."""

    def __init__(self):
        self.values = {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
        self.altered = []

    async def call(self, request, *_, **__):
        if type(request).__name__ == "DescribeClientQuotasRequest":
            assert request.strict
            entity = [SimpleNamespace(entity_type="user", entity_name="alice")]
            values = [SimpleNamespace(key=k, value=v) for k, v in self.values.items()]
            entry = SimpleNamespace(entity=entity, values=values)
            return SimpleNamespace(error_code=0, entries=[entry])
        (entry,) = request.entries
        self.altered.append(
            (request.validate_only, [(o.key, o.value, o.remove) for o in entry.ops])
        )
        return SimpleNamespace(entries=[SimpleNamespace(error_code=0, error_message=None)])


def test_quotas_are_numbers_and_changed_in_one_request():
    broker, alice = Quotas(), Whose(None, "", {"user": "alice"})

    def alter(*changes, dry_run=False):
        return asyncio.run(_alter_quotas(broker, alice, changes, dry_run=dry_run))

    both = (
        configs.Change(configs.SET, "producer_byte_rate", "2e3"),
        configs.Change(configs.DELETE, "request_percentage"),
    )
    assert alter(*both, dry_run=True) == {"producer_byte_rate": 1000, "request_percentage": 12.5}
    ops = [("producer_byte_rate", 2000.0, False), ("request_percentage", 0.0, True)]
    assert broker.altered == [(True, ops)]
    for bad in (
        configs.Change(configs.SET, "producer_byte_rate", "fast"),
        configs.Change(configs.APPEND, "producer_byte_rate", "5"),
        configs.Change(configs.DELETE, "consumer_byte_rate"),
    ):
        with pytest.raises(OttlaError, match=bad.key):
            alter(bad)
    assert len(broker.altered) == 1
