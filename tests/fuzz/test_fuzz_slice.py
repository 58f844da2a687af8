"""A slice of the long run, the same every time: seeded mutants of every request and version.

F31 to F35. `python tests/fuzz/fuzz.py` runs the same targets for as long as it is told, guided by
coverage; `OTTLA_FUZZ_MUTANTS=50` multiplies this slice.
"""

import os
import random

import fuzz_coordination
import pytest
from fuzz_broker import BrokerTarget, Finding
from fuzz_corpus import kept
from fuzz_messages import KEYS, OF_THE_CONTROLLER, Nonsense
from fuzz_mutations import Mutator, joined
from fuzz_peers import PeerTarget
from fuzz_seeds import SEEDS, answers
from msgspec import structs

from fuzz import make
from ottla.broker.requests.routes import ROUTES
from ottla.model.errors import OttlaError
from ottla.replication.fetcher import LeaderFetcher
from ottla.security.sasl import jaas
from ottla.wire import primitives
from ottla.wire.apis import APIS
from ottla.wire.codec import encode_request
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.groups import DeleteGroupsRequest
from ottla.zookeeper import memory
from ottla.zookeeper.server_authentication import SaslUsers

TIMES = int(os.environ.get("OTTLA_FUZZ_MUTANTS", "1"))
ROUNDS = {
    "messages": 2500, "batches": 5000, "compression": 2500, "files": 2500, "texts": 4000,
    "coordination": 400,
}  # fmt: skip


def checked(target, what, raw):
    try:
        target.check(raw)
    except Exception as error:
        raise AssertionError(f"{what} {raw.hex()}") from error


def mutants(key, topic_ids):
    """Yield streams: a good request of each version first, then three with one or two changes."""
    rng = random.Random(key)
    nonsense = Nonsense(key, topic_ids=topic_ids)
    mutator = Mutator(rng, topic_ids)
    for version in range(APIS[key].min_version, APIS[key].max_version + 1):
        good = nonsense.request(key, version)
        yield joined([good])
        for _ in range(3 * TIMES):
            bad = mutator.request(good)
            if rng.random() < 0.5:
                bad = mutator.request(bad)
            yield joined([bad, nonsense.any_request()] if rng.random() < 0.3 else [bad])


@pytest.mark.parametrize("key", KEYS)
def test_a_broker_survives_every_request(broker_target, key):
    for stream in mutants(key, broker_target.topic_ids):
        checked(broker_target, "mutant", stream)


@pytest.mark.parametrize("key", sorted(OF_THE_CONTROLLER))
def test_a_broker_survives_what_only_a_controller_sends(broker_target, key):
    """These are obeyed, so each is sent to a broker of its own."""
    rng = random.Random(key)
    streams = list(mutants(key, broker_target.topic_ids))
    for stream in rng.sample(streams, min(len(streams), 8 * TIMES)):
        checked(broker_target, "mutant", stream)


@pytest.mark.parametrize("name", list(ROUNDS))
def test_mutants_below_the_broker(name):
    target, mutation = make(name)
    rng = random.Random(name)
    pool = [raw for _, raw in SEEDS[name]()]
    try:
        for _ in range(ROUNDS[name] * TIMES):
            raw = rng.choice(pool)
            for _ in range(rng.choice((1, 1, 2, 3))):
                raw = mutation(raw, rng, target)
            checked(target, "mutant", raw)
    finally:
        target.close()


@pytest.mark.parametrize("seed", range(2))
def test_a_broker_survives_what_a_false_one_answers(seed):
    target, mutation = make("peers")
    rng = random.Random(seed)
    pool = [raw for _, raw in answers(seed, target.topic_ids)]
    try:
        for _ in range(40 * TIMES):
            raw = rng.choice(pool)
            for _ in range(rng.choice((1, 1, 2))):
                raw = mutation(raw, rng, target)
            checked(target, "mutant", raw)
    finally:
        target.close()


@pytest.mark.parametrize("name", list(SEEDS))
def test_kept_inputs(name):
    target, _ = make(name)
    try:
        for what, raw in kept(name):
            checked(target, what, raw)
    finally:
        target.close()


# That the oracle sees what it is there for.


def findings(monkeypatch, key, handler, stream):
    monkeypatch.setitem(ROUTES, key, structs.replace(ROUTES[key], handle=handler))
    target = BrokerTarget()
    try:
        with pytest.raises(Finding) as found:
            target.check(stream)
    finally:
        target.close()
    return str(found.value)


def test_a_handler_that_falls_over_is_found(monkeypatch):
    def clumsy(server, conn, header, request):
        return request.topics[7]

    found = findings(monkeypatch, 66, clumsy, joined([Nonsense(1).request(66, 0)]))
    assert "AttributeError" in found


def test_a_handler_that_says_nothing_is_found(monkeypatch):
    def mute(server, conn, header, request):
        return None

    found = findings(monkeypatch, 60, mute, joined([Nonsense(1).request(60, 0)]))
    assert "neither answered nor closed" in found


def test_a_refusal_that_leaves_something_behind_is_found(monkeypatch):
    honest = ROUTES[42].handle

    def sly(server, conn, header, request):
        for partition in server.replicas.leaders():
            partition.state.leader_epoch += 1
        return honest(server, conn, header, request)

    body = b"".join(encode_request(DeleteGroupsRequest(groups_names=["nobody"]), 2))
    stream = joined([encode_request_header(42, 2, 1, "c") + body])
    found = findings(monkeypatch, 42, sly, stream)
    assert "the broker's state is another" in found


def test_a_follower_that_falls_over_is_found(monkeypatch):
    def clumsy(self, state, data):
        raise KeyError(state.tp)

    monkeypatch.setattr(LeaderFetcher, "_append", clumsy)
    target = PeerTarget()
    try:
        raw = next(raw for _, raw in answers(topic_ids=target.topic_ids))
        with pytest.raises(Finding, match="KeyError"):
            target.check(raw)
    finally:
        target.close()


def test_honest_answers_are_followed():
    """Else the target would try nothing but errors."""
    target = PeerTarget()
    try:
        for _ in range(3):
            target.check(next(raw for _, raw in answers(topic_ids=target.topic_ids)))
        assert target.world.log(0).log_end_offset == 6
    finally:
        target.close()


@pytest.mark.parametrize(
    ("place", "name", "planted", "found"),
    [
        (fuzz_coordination, "SaslUsers", lambda users, required: SaslUsers(users, required=False),
         "a stranger changed"),
        (memory, "Reads", lambda _server: None, "AttributeError"),
        (jaas, "parse_jaas_file", lambda _where, text: text[9999], "out of range"),
    ],
    ids=["strangers", "reads", "texts"],
)  # fmt: skip
def test_what_the_later_targets_are_there_for_is_found(monkeypatch, place, name, planted, found):
    monkeypatch.setattr(place, name, planted)
    kind = "texts" if place is jaas else "coordination"
    target, _ = make(kind)

    def run():
        for what, raw in SEEDS[kind]():
            checked(target, what, raw)

    try:
        with pytest.raises(AssertionError) as caught:
            run()
    finally:
        target.close()
    assert found in repr(caught.value.__cause__)


def test_text_longer_than_kafka_reads_is_refused():
    raw = memoryview(primitives.uvarint(32769) + bytes(32768))
    with pytest.raises(OttlaError, match="longer than"):
        primitives.read_text_length(raw, 0)
    assert primitives.read_text_length(memoryview(primitives.uvarint(32768)), 0)[0] == 32768


def test_a_large_request_is_changed_too():
    """A header's length of a client's id is 16 bits; the guided run ended at a larger request."""
    raw = encode_request_header(0, 9, 1, "c") + bytes(100_000)
    for seed in range(200):
        Mutator(random.Random(seed), {}).request(raw)
