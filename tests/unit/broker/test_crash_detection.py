"""R17, F44 in the simulated world: processes that die, are silent, refuse though alive, or end."""

import asyncio
import json
import logging

import pytest
from msgspec.structs import replace

from ottla.broker.broker import Broker
from ottla.broker.lifecycle import controller_watch
from ottla.broker.metrics.mbeans import Metrics
from ottla.broker.services import BrokerState
from ottla.controller.crash_detection import PAUSE_S
from ottla.controller.events import ProcessGone
from ottla.model.journal_schema import JOURNAL_NAME

SESSION_S = 6.0


def controller_of(scene):
    """Return the number of the broker that /controller names, None if there is none."""
    znode = scene.znode("/controller")
    return None if znode is None else json.loads(znode.data)["brokerid"]


def registration(scene, number):
    """Return the czxid of a broker's registration, None if there is none."""
    znode = scene.znode(f"/brokers/ids/{number}")
    return None if znode is None else znode.czxid


def statement(scene, number):
    return json.loads(scene.znode(f"/ottla/brokers/{number}").data or b"{}")


def three(scene, **settings):
    for number in (1, 2, 3):
        scene.up(number, **settings)
    assert controller_of(scene) == 1
    scene.simulation.run_for(1.0)


def gone_after(scene, number, within_s=60.0):
    """Return how long it takes until a registration is gone."""
    began_s = scene.simulation.now
    scene.wait(lambda: registration(scene, number) is None, within_s)
    return scene.simulation.now - began_s


def refuse(scene, number, *, reset=True):
    """Let a broker's host refuse connections, as a packet filter does; its process lives on."""
    internet = scene.simulation.internet
    internet.refusing.add(f"b{number}")
    if reset:
        for other in ("b1", "b2", "b3"):
            if other != f"b{number}":
                internet.reset_connections(f"b{number}", other)


def test_f44_a_process_that_dies_is_gone_long_before_its_session_ends(scene):
    three(scene)
    scene.simulation.node("b2").crash()
    assert gone_after(scene, 2) < 0.2
    removal = statement(scene, 2)["removal"]
    assert removal["by"] == 1
    assert removal["evidence"] == "connection refused at PLAINTEXT://b2:9092"
    scene.simulation.run_for(0.1)
    assert scene.brokers["b1"].services.controller.statistics()["registrations_removed_total"] == 1
    found = Metrics(scene.brokers["b1"]).figures()
    assert (
        found["ottla.controller:type=ControllerStats,name=RegistrationsRemovedPerSec"]["Count"] == 1
    )
    proof = found["ottla.controller:type=CrashDetection,name=ProofTimeMs"]
    assert proof["Count"] == 1
    assert PAUSE_S * 1000 <= proof["Min"] <= proof["Max"] < 200, "two rounds, before it was gone"


def test_f44_a_controller_that_dies_is_followed_at_once(scene):
    three(scene)
    scene.simulation.node("b1").crash()
    assert gone_after(scene, 1) < 0.3
    scene.wait(lambda: controller_of(scene) in (2, 3), 1.0)
    assert statement(scene, 1)["removal"]["by"] == 2, "the lowest id begins"


def test_f44_two_at_once_the_controller_among_them(scene):
    three(scene)
    scene.simulation.node("b1").crash()
    scene.simulation.node("b2").crash()
    began_s = scene.simulation.now
    scene.wait(lambda: registration(scene, 1) is None and registration(scene, 2) is None, 5.0)
    assert scene.simulation.now - began_s < 1.0
    assert controller_of(scene) == 3


def test_f44_a_controller_that_died_before_it_named_itself_is_followed_soon(scene):
    """All die; who is back first has not heard who the controller was."""
    three(scene)
    for number in (1, 2, 3):
        scene.simulation.node(f"b{number}").crash()
    scene.boot(2)
    scene.wait(lambda: (registration(scene, 2) or 0) > registration(scene, 3), 3.0)
    began_s = scene.simulation.now
    scene.wait(lambda: controller_of(scene) == 2, 5.0)
    scene.wait(lambda: registration(scene, 1) is None and registration(scene, 3) is None, 5.0)
    assert scene.simulation.now - began_s < 1.0


def test_f44_a_controller_that_lives_is_left_alone_by_who_has_not_heard_of_it(scene, monkeypatch):
    monkeypatch.setattr(controller_watch, "UNKNOWN_S", 0.0001)
    three(scene)
    scene.simulation.run_for(5.0)
    assert controller_of(scene) == 1
    assert all("removal" not in statement(scene, number) for number in (1, 2, 3))


@pytest.mark.parametrize("number", [1, 2])
def test_f44_silence_is_no_proof(scene, number):
    three(scene)
    node = scene.simulation.node(f"b{number}")
    node.crash(power_loss=True)
    assert gone_after(scene, number) > SESSION_S / 2


@pytest.mark.parametrize("number", [1, 2])
def test_f44_a_paused_process_is_not_gone(scene, number):
    three(scene)
    before = registration(scene, number)
    node = scene.simulation.node(f"b{number}")
    node.pause()
    scene.simulation.internet.reset_connections(node.name)
    scene.simulation.run_for(SESSION_S / 2)
    assert registration(scene, number) == before
    node.resume()
    scene.simulation.run_for(1.0)
    assert registration(scene, number) == before


@pytest.mark.parametrize("number", [1, 2])
def test_f44_reset_connections_of_a_live_broker_prove_nothing(scene, number):
    three(scene)
    before = registration(scene, number)
    for _ in range(5):
        scene.simulation.internet.reset_connections(f"b{number}")
        scene.simulation.run_for(0.5)
    assert registration(scene, number) == before
    scene.simulation.node(f"b{number}").crash()
    assert gone_after(scene, number) < 0.5, "there is a connection that shows it"


@pytest.mark.parametrize("number", [1, 2])
def test_f44_idle_connections_that_were_closed_are_opened_again(scene, number):
    three(scene, connections_max_idle_ms="1000", auto_leader_rebalance_enable="false")
    scene.simulation.run_for(30.0)
    before = registration(scene, number)
    assert before is not None
    scene.simulation.node(f"b{number}").crash()
    assert gone_after(scene, number) < 0.5


@pytest.mark.parametrize("number", [1, 2])
def test_r17_one_refusal_is_no_proof(scene, number):
    three(scene)
    before = registration(scene, number)
    refuse(scene, number)
    scene.simulation.run_for(0.02)
    scene.simulation.internet.refusing.clear()
    scene.simulation.run_for(3.0)
    assert registration(scene, number) == before


@pytest.mark.parametrize("number", [1, 2])
def test_r17_a_broker_that_lives_registers_anew_and_is_not_removed_again(scene, number, caplog):
    three(scene)
    before = registration(scene, number)
    refuse(scene, number)
    scene.wait(lambda: registration(scene, number) != before, 2.0)
    scene.wait(lambda: (registration(scene, number) or 0) > before, 2.0)
    again = registration(scene, number)
    assert "removable" not in statement(scene, number)
    assert any(
        "registration was removed while this broker lives" in r.getMessage()
        for r in caplog.records
        if r.levelno == logging.ERROR
    )
    refuse(scene, number)
    scene.simulation.run_for(SESSION_S)
    assert registration(scene, number) == again
    scene.simulation.internet.refusing.clear()
    scene.wait(lambda: scene.heard(f"b{number}"))
    node = scene.simulation.node(f"b{number}")
    node.crash()
    scene.boot(number)
    scene.wait(lambda: scene.heard(f"b{number}"))
    assert statement(scene, number)["removable"], "another process may be trusted again"


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("controlled", ["true", "false"])
def test_f44_a_broker_that_shuts_down_in_order_is_not_taken_for_gone(
    scene, number, controlled, caplog
):
    three(scene, controlled_shutdown_enable=controlled)
    scene.stop(number)
    scene.simulation.run_for(1.0)
    assert registration(scene, number) is None
    assert "removal" not in statement(scene, number)
    assert not [r for r in caplog.records if "registration removed" in r.getMessage()]


@pytest.mark.parametrize("after_ms", [0, 1, 2, 3])
def test_f44_a_broker_that_is_stopped_while_it_starts_is_not_taken_for_gone(
    scene, after_ms, monkeypatch
):
    close_logs = Broker._close_logs

    async def slowly(self):
        await close_logs(self)
        await asyncio.sleep(0.5)

    monkeypatch.setattr(Broker, "_close_logs", slowly)
    scene.up(1)
    scene.up(3)
    scene.boot(2)
    scene.wait(lambda: registration(scene, 2) is not None)
    before = registration(scene, 2)
    scene.simulation.run_for(after_ms / 1000)
    assert scene.brokers["b2"].state is not BrokerState.RUNNING
    scene.simulation.node("b2").task.cancel()
    scene.simulation.run_for(0.4)
    assert registration(scene, 2) == before
    scene.simulation.run_for(1.0)
    assert registration(scene, 2) is None
    assert "removal" not in statement(scene, 2)


def test_f44_a_rack_that_dies_is_gone_within_a_second(scene):
    """The controller and three more, all of lower ids than those that are left."""
    for number in range(1, 7):
        scene.up(number)
    assert controller_of(scene) == 1
    scene.simulation.run_for(1.0)
    for number in range(1, 5):
        scene.simulation.node(f"b{number}").crash()
    scene.wait(lambda: not any(registration(scene, number) for number in range(1, 5)), 1.0)
    scene.wait(lambda: controller_of(scene) in (5, 6), 0.2)
    assert registration(scene, 5) is not None
    assert registration(scene, 6) is not None


def test_f44_after_the_controllers_death_not_all_ask_at_once(scene, monkeypatch):
    """The one with the lowest id asks first; the others hear of the next controller meanwhile."""
    asked = []
    refusal_of = controller_watch.refusal_of

    async def counted(network, endpoints):
        asked.append(network)
        return await refusal_of(network, endpoints)

    monkeypatch.setattr(controller_watch, "refusal_of", counted)
    for number in range(1, 11):
        scene.up(number)
    scene.simulation.run_for(1.0)
    assert not asked
    scene.simulation.node("b1").crash()
    scene.wait(lambda: controller_of(scene) not in (1, None), 1.0)
    scene.simulation.run_for(2.0)
    assert statement(scene, 1)["removal"]["by"] == 2
    assert 1 <= len(asked) <= 3, "of nine"


def test_f44_a_proof_about_former_listeners_removes_nobody(scene):
    """A JVM broker may change its listeners while it runs (`ottla.crash.detection=all`)."""
    three(scene)
    before = registration(scene, 2)
    controller = scene.brokers["b1"].services.controller
    known = scene.brokers["b2"].broker_info()
    former = tuple(replace(e, port=e.port + 1) for e in known.endpoints)
    controller._post(ProcessGone(2, before, former, "of before"))
    scene.simulation.run_for(1.0)
    assert registration(scene, 2) == before
    controller._post(ProcessGone(2, before, known.endpoints, "of now"))
    scene.wait(lambda: registration(scene, 2) != before, 1.0)


def test_f44_off_is_kafkas_way(scene):
    three(scene, ottla_crash_detection="off")
    assert "removable" not in statement(scene, 2)
    scene.simulation.node("b2").crash()
    assert gone_after(scene, 2) > SESSION_S / 2
    scene.simulation.node("b1").crash()
    assert gone_after(scene, 1) > SESSION_S / 2


def test_f44_a_broker_that_did_not_agree_waits_for_its_session(scene):
    scene.up(1)
    scene.up(2, ottla_crash_detection="off")
    scene.up(3)
    scene.simulation.run_for(1.0)
    scene.simulation.node("b2").crash()
    assert gone_after(scene, 2) > SESSION_S / 2
    scene.simulation.node("b3").crash()
    assert gone_after(scene, 3) < 0.3


def test_f44_a_killed_broker_that_returns_at_once_is_let_in(scene):
    three(scene)
    for _ in range(3):
        node = scene.simulation.node("b2")
        node.crash()
        scene.boot(2)
        scene.wait(lambda: scene.heard("b2"))
        scene.simulation.run_for(1.0)
        assert registration(scene, 2) is not None
        assert "removable" in statement(scene, 2)


def test_f44_the_new_controller_tells_why_the_former_one_is_gone(scene):
    three(scene)
    scene.simulation.node("b1").crash()
    scene.wait(lambda: controller_of(scene) in (2, 3), 1.0)
    scene.simulation.run_for(1.0)
    files = scene.simulation.node(f"b{controller_of(scene)}").files
    journal = files.read_bytes(f"/data/{JOURNAL_NAME}")
    elected = [json.loads(line) for line in journal.splitlines() if b'"Elected"' in line]
    evidence = "connection refused at PLAINTEXT://b1:9092"
    assert elected[-1]["inputs"]["removed"] == {"1": evidence}
