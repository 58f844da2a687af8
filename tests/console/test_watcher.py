"""Brokers are pinged on connections of their own: a large response before them is no silence."""

import asyncio
from types import SimpleNamespace

from ottla.console.watcher import Watcher


class Brokers:
    """One broker; `large` requests take this client's connection for long."""

    def __init__(self, *, busy):
        self.busy, self.calls, self.closed = busy, 0, False

    async def metadata(self, _topics):
        return SimpleNamespace(
            cluster_id="c",
            controller_id=0,
            brokers=[SimpleNamespace(node_id=0, host="h", port=1, rack=None)],
            topics=[],
        )

    async def call(self, request, broker=None, **_):
        self.calls += 1
        if self.busy and type(request).__name__ == "MetadataRequest":
            raise TimeoutError
        return SimpleNamespace(
            error_code=0, controller_id=0, topics=[], groups=[],
            brokers=[SimpleNamespace(node_id=broker)],
        )  # fmt: skip

    async def broker_ids(self):
        return []

    async def close(self):
        self.closed = True


def test_pings_do_not_wait_behind_large_responses():
    async def run():
        shared, own = Brokers(busy=True), []

        def another():
            own.append(Brokers(busy=False))
            return own[-1]

        watcher = Watcher(shared, another())
        watcher.want()
        running = asyncio.create_task(watcher.run())
        await asyncio.wait_for(watcher.look(), 10)
        async with asyncio.timeout(10):
            while not (own and own[0].calls > 1):
                await asyncio.sleep(0.05)
        assert watcher.silent == {}
        assert len(own) == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert own[0].closed

    asyncio.run(run())
