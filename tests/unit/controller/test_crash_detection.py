"""R17, the rule: refused by every endpoint, twice, is proof; everything else proves nothing."""

import asyncio
import itertools
import time

import pytest

from ottla.controller import crash_detection
from ottla.controller.crash_detection import CrashDetector, refusal_of
from ottla.model.cluster import BrokerInfo, Endpoint

CLIENTS = Endpoint("h", 9092, "CLIENTS")
BROKERS = Endpoint("h", 9093, "BROKERS")


class Answers:
    """A network that gives each probe the next answer of its port."""

    def __init__(self, **by_port):
        self.left = {int(port[1:]): list(answers) for port, answers in by_port.items()}
        self.asked = []

    async def refuses(self, host, port, *, timeout_s):
        assert timeout_s <= 1.0
        self.asked.append((host, port))
        return self.left[port].pop(0)


class RealTime:
    monotonic = staticmethod(time.monotonic)


def world_of(network):
    return type("World", (), {"network": network, "clock": RealTime})


def ask(network, *endpoints):
    return asyncio.run(refusal_of(network, endpoints))


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(crash_detection, "PAUSE_S", 0.0)


@pytest.mark.parametrize("answers", list(itertools.product([True, False], repeat=4)))
def test_only_refused_by_all_in_both_rounds_is_proof(answers):
    first, second, third, fourth = answers
    network = Answers(p9092=[first, third], p9093=[second, fourth])
    evidence = ask(network, CLIENTS, BROKERS)
    assert (evidence is not None) == all(answers)


def test_the_evidence_names_every_endpoint():
    network = Answers(p9092=[True, True], p9093=[True, True])
    evidence = ask(network, CLIENTS, BROKERS)
    assert evidence == "connection refused at CLIENTS://h:9092, BROKERS://h:9093"


def test_a_broker_without_endpoints_is_never_taken_for_gone():
    assert ask(Answers()) is None


def test_two_listeners_of_one_address_are_asked_once():
    network = Answers(p9092=[True, True])
    assert ask(network, CLIENTS, Endpoint("h", 9092, "OTHER")) is not None
    assert network.asked == [("h", 9092)] * 2


def test_a_broker_is_probed_once_at_a_time_and_again_later():
    async def scenario():
        gone = []
        network = Answers(p9092=[True, False, True, True])
        world = world_of(network)
        broker = BrokerInfo(3, (CLIENTS,), epoch=7)
        detector = CrashDetector(world, lambda broker, evidence, _: gone.append((broker, evidence)))
        for _ in range(5):
            detector.suspect(broker)
        while len(network.asked) < 2:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert not gone, "accepted in the second round"
        detector.suspect(broker)
        while not gone:
            await asyncio.sleep(0)
        assert gone == [(broker, "connection refused at CLIENTS://h:9092")]
        detector.suspect(broker)
        assert not detector._probes, "of one registration it is reported once"
        assert not detector.has_accepted(broker)
        detector.connected(broker)
        assert detector.has_accepted(broker)
        network.left[9092] = [True, True]
        detector.suspect(broker)
        while len(gone) < 2:
            await asyncio.sleep(0)
        assert gone.pop()[0] == broker, "it has accepted a connection since"
        network.left[9092] = [True, True]
        again = BrokerInfo(3, (CLIENTS,), epoch=8)
        assert not detector.has_accepted(again)
        detector.suspect(again)
        while len(gone) < 2:
            await asyncio.sleep(0)
        assert gone[1][0] == again

    asyncio.run(asyncio.wait_for(scenario(), 5))


class SlowAnswers:
    """A network on which every port refuses, a turn of the loop later; it counts who asks."""

    def __init__(self):
        self.asking = self.most = self.asked = 0

    async def refuses(self, _host, _port, *, timeout_s):
        self.asking += 1
        self.asked += 1
        self.most = max(self.most, self.asking)
        await asyncio.sleep(0)
        self.asking -= 1
        return True


def test_a_thousand_brokers_at_once_are_probed_a_few_at_a_time():
    """Each probe is a socket: a thousand would leave files and clients without descriptors."""
    brokers = [BrokerInfo(number, (CLIENTS, BROKERS), epoch=number) for number in range(1000)]

    async def scenario():
        gone = []
        network = SlowAnswers()
        detector = CrashDetector(world_of(network), lambda *found: gone.append(found[0]))
        for broker in brokers:
            detector.suspect(broker)
        while len(gone) < len(brokers):
            await asyncio.sleep(0)
        assert network.asked == 2 * 2 * len(brokers)
        assert network.most == crash_detection.MAX_PROBES
        assert sorted(b.id for b in gone) == [b.id for b in brokers]

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_after_the_end_of_a_term_nothing_is_reported():
    async def scenario():
        gone = []
        world = world_of(Answers(p9092=[True, True]))
        detector = CrashDetector(world, lambda *found: gone.append(found[:2]))
        detector.suspect(BrokerInfo(3, (CLIENTS,), epoch=7))
        await asyncio.sleep(0)
        detector.close()
        await asyncio.sleep(0.01)
        assert not gone

    asyncio.run(asyncio.wait_for(scenario(), 5))
