"""The list of APIs: every entry there is, under Kafka's name, and what Kafka says of each."""

import importlib
import pkgutil
from types import SimpleNamespace

import ottla.broker.requests
from ottla.broker.requests.api import Api, InSlices
from ottla.broker.requests.router import Router
from ottla.broker.requests.routes import ROUTES
from ottla.net.limits import FrameRules
from ottla.wire.apis import ApiKey

# Kafka 3.9's `ApiKeys`: `clusterAction` is true.
CLUSTER_ACTIONS = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
}
# KIP-291: what a control plane listener is for.
CONTROL_PLANE = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}


def entries():
    """Return every entry in a module of the room, by module and name."""
    package = ottla.broker.requests
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if isinstance(value, Api):
                yield f"{found.name}.{name}", name, value


def test_every_entry_is_in_the_list_once_and_has_the_name_of_its_key():
    made = list(entries())
    assert [where for where, name, api in made if api.key.name != name] == []
    assert {id(api) for _, _, api in made} == {id(api) for api in ROUTES.values()}
    assert len(made) == len(ROUTES)


def test_a_handler_stands_in_the_module_of_its_entry():
    for where, _, api in entries():
        handlers = [api.handle] + ([api.large.handle] if isinstance(api.large, InSlices) else [])
        assert {h.__module__ for h in handlers} == {where.rpartition(".")[0]}, where


def test_requests_between_brokers_are_kafkas_cluster_actions():
    assert {api.key for api in ROUTES.values() if api.between_brokers} == CLUSTER_ACTIONS


def test_the_control_plane_is_kafkas():
    assert {api.key for api in ROUTES.values() if api.control_plane} == CONTROL_PLANE


def test_connections_know_each_special_request_by_the_two_bytes_of_its_key():
    rules = Router(SimpleNamespace(served=(), authorizer=None), ROUTES.values()).frame_rules
    large = {api.key for api in ROUTES.values() if api.large_response}
    assert rules == FrameRules(
        pipelined=b"\x00\x00",
        control_plane=frozenset({b"\x00\x04", b"\x00\x05", b"\x00\x06"}),
        large_responses=frozenset(bytes([key >> 8, key & 255]) for key in large),
    )
    assert {ApiKey.FETCH, ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS} < large
