"""The control plane side by side: controlled shutdown, restart, and three kinds of kill -9.

Who may call: `quick.py`, on a cluster of three brokers that hosts thousands of partitions of RF 3.
Everything is seen through one session of ours with ZooKeeper, the same for Kafka and for Ottla: a
data watch on every partition's state znode and on every /brokers/ids/N. Times are ZooKeeper's own
(the mtime of the last state written that made the condition true), so that neither polling nor
this process's own speed counts.
"""

import asyncio
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ottla.admin.session import world
from ottla.model.cluster import LeaderAndIsr
from ottla.model.ids import TopicPartition
from ottla.net import runtime
from ottla.zookeeper import znodes
from ottla.zookeeper.session import Session
from ottla.zookeeper.store import Store

LIMIT_S = 120.0
SESSION_TIMEOUT_MS = 30_000
SETTLE_S = 3.0
POLL_S = 0.005


class Cluster(Protocol):
    """What a system under test can be asked to do to one of its brokers."""

    zookeeper: str

    def signal(self, broker: int, number: int) -> None: ...

    def start(self, broker: int) -> None: ...

    def gone(self, broker: int) -> bool: ...


Condition = Callable[[LeaderAndIsr], bool]


@dataclass
class View:
    """Every partition's state as ZooKeeper has it now, and when brokers' znodes went."""

    store: Store
    states: dict[TopicPartition, tuple[LeaderAndIsr, float]] = field(default_factory=dict)
    lost_at: dict[int, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    news: deque[TopicPartition] = field(default_factory=deque)
    reading: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self) -> None:
        topics = await self.store.topics.get_many(await self.store.topics.get_names())
        partitions = [
            TopicPartition(name, p)
            for name, info in topics.items()
            if info is not None
            for p, assignment in info.assignment.items()
            if len(assignment.replicas) > 1
        ]
        await asyncio.gather(*(self._read(tp) for tp in partitions))

    async def _read(self, tp: TopicPartition) -> None:
        path = znodes.state_path(tp)
        data, stat = await self.store.session.get(path, lambda _event: self._again(tp))
        state = znodes.decode_state(tp, data, stat.version).leader_and_isr
        self.states[tp] = state, stat.mtime / 1000
        self.news.append(tp)
        self.changed.set()

    def _again(self, tp: TopicPartition) -> None:
        task = asyncio.ensure_future(self._read(tp))
        self.reading.add(task)
        task.add_done_callback(self.reading.discard)

    async def watch_broker(self, broker: int) -> None:
        """Note when the znode of a broker goes."""
        self.lost_at.pop(broker, None)

        def gone(_event: object) -> None:
            self.lost_at[broker] = time.time()
            self.changed.set()

        await self.store.session.get(znodes.broker_path(broker), gone)

    async def until(self, *conditions: Condition) -> list[float]:
        """Wait until each holds of every state; return when the last state came to fulfil each.

        A condition that held from the beginning gives 0.
        """
        self.news.clear()
        lacking = [
            {tp for tp, (state, _) in self.states.items() if not condition(state)}
            for condition in conditions
        ]
        last = [0.0] * len(conditions)

        def done() -> bool:
            while self.news:
                tp = self.news.popleft()
                state, at = self.states[tp]
                for n, condition in enumerate(conditions):
                    if not condition(state):
                        lacking[n].add(tp)
                    elif tp in lacking[n]:
                        lacking[n].discard(tp)
                        last[n] = max(last[n], at)
            return not any(lacking)

        await self._wait(done)
        return last

    async def until_lost(self, broker: int) -> float:
        await self._wait(lambda: broker in self.lost_at)
        return self.lost_at[broker]

    async def _wait(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not done():
                self.changed.clear()
                await self.changed.wait()

    def led_by(self, broker: int) -> int:
        return sum(state.leader == broker for state, _ in self.states.values())


async def shut_down(cluster: Cluster, view: View, broker: int) -> dict[str, float]:
    """SIGTERM one broker, and start it again."""
    assert view.led_by(broker), f"broker {broker} leads nothing"
    began = time.time()
    cluster.signal(broker, signal.SIGTERM)
    ended: list[float] = []

    async def watch_end() -> None:
        while not cluster.gone(broker):  # noqa: ASYNC110 - another process
            await asyncio.sleep(POLL_S)
        ended.append(time.time())

    watching = asyncio.ensure_future(watch_end())
    (left,) = await view.until(lambda s: s.leader != broker)
    async with asyncio.timeout(LIMIT_S):
        await watching
    restarted = time.time()
    start = asyncio.ensure_future(asyncio.to_thread(cluster.start, broker))
    (back,) = await view.until(full)
    await start
    return {
        "shutdown_led_s": left - began,
        "shutdown_end_s": ended[0] - began,
        "restart_isr_s": back - restarted,
    }


async def kill(cluster: Cluster, view: View, broker: int) -> tuple[float, float]:
    """Kill -9; return seconds from the loss of its znode until all is led, and in sync, without."""
    await view.watch_broker(broker)
    cluster.signal(broker, signal.SIGKILL)
    led, without = await view.until(
        lambda s: s.leader not in (broker, -1), lambda s: broker not in s.isr
    )
    lost = await view.until_lost(broker)
    await asyncio.to_thread(cluster.start, broker)
    await view.until(full)
    await asyncio.sleep(SETTLE_S)
    return max(0.0, led - lost), max(0.0, without - lost)


def full(state: LeaderAndIsr) -> bool:
    return len(state.isr) == 3


async def _measure(cluster: Cluster) -> dict[str, float]:
    session = await Session.connect(world(), cluster.zookeeper, SESSION_TIMEOUT_MS, 10_000)
    try:
        view = View(Store(session))
        await view.open()
        controller = await view.store.election.get_controller_id()
        follower, leader = (b for b in range(3) if b != controller)
        await view.until(full)
        found = await shut_down(cluster, view, follower)
        await asyncio.sleep(SETTLE_S)
        # Nothing has moved leaders back to it yet: it only follows.
        assert not view.led_by(follower), "leaders moved back too early"
        _, found["kill_follower_s"] = await kill(cluster, view, follower)
        assert view.led_by(leader), f"broker {leader} leads nothing"
        found["kill_leader_s"], _ = await kill(cluster, view, leader)
        controller = await view.store.election.get_controller_id()
        assert controller is not None
        assert view.led_by(controller), f"broker {controller} leads nothing"
        found["kill_controller_s"], _ = await kill(cluster, view, controller)
        return found
    finally:
        await session.close()


def measure(cluster: Cluster) -> dict[str, float]:
    """Run all of it; return seconds by the key of the scenario."""
    return runtime.run(_measure, cluster)
