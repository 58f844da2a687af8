"""Sessions that walk only dirty entries answer as those that walk all would (Kafka's)."""

import random

import pytest

from ottla.wire.records import iter_batches

PARTITIONS = 4


class Reader:
    """A client with a session, and the response of a server that walks every partition."""

    def __init__(self, wired, chance, replica):
        self.wired, self.chance, self.replica = wired, chance, replica
        self.session, self.epoch = 0, 0
        self.offsets = dict.fromkeys(range(PARTITIONS), 0)
        self.told = dict.fromkeys(range(PARTITIONS))
        self.listed = set()

    def bound(self, log):
        return log.log_end_offset if self.replica >= 0 else log.high_watermark

    async def fetch(self, c):
        full = self.epoch == 0
        moved = [
            p for p in self.offsets if full or self.listed != set(self.offsets) or p in self.moved
        ]
        request = self.wired.fetch_request(
            0, session_id=self.session, session_epoch=self.epoch, replica=self.replica
        )
        request.topics[0].partitions = [
            self.wired.fetch_request(self.offsets[p], index=p, epoch=0, replica=self.replica)
            .topics[0]
            .partitions[0]
            for p in moved
        ]
        if not moved:
            request.topics = []
        self.listed |= set(moved)
        self.moved = set()
        response = await c[1].send(request, 17)
        assert response.error_code == 0
        self.session = response.session_id
        self.epoch += 1
        got = {p.partition_index: p for t in response.responses for p in t.partitions}
        for p in self.offsets:
            log = c[1].log(p)
            news = (
                full
                or self.offsets[p] < self.bound(log)
                or self.told[p] != (log.high_watermark, log.log_start_offset)
            )
            assert (p in got) == news, (p, self.replica)
            if p in got:
                self.told[p] = (got[p].high_watermark, got[p].log_start_offset)
                assert got[p].high_watermark == log.high_watermark
                ends = [
                    h.last_offset + 1 for _, h in iter_batches(memoryview(got[p].records or b""))
                ]
                assert (ends or [self.offsets[p]])[-1] == max(self.offsets[p], self.bound(log))
                if ends and self.chance.random() < 0.8:
                    self.offsets[p] = ends[-1]
                    self.moved.add(p)

    moved: set = frozenset()


@pytest.mark.parametrize("seed", range(8))
def test_the_same_as_walking_all(wired, seed):
    chance = random.Random(seed)

    async def scenario(c):
        for index in range(PARTITIONS):
            await c.controller.lead(1, replicas=[1, 2], new=True, index=index, to=[1])
        readers = [Reader(wired, chance, -1), Reader(wired, chance, -1), Reader(wired, chance, 2)]
        for _ in range(120):
            what = chance.random()
            if what < 0.3:
                await c.produce(1, "x", acks=1, index=chance.randrange(PARTITIONS))
            elif what < 0.35:
                log = c[1].log(chance.randrange(PARTITIONS))
                log.maybe_increment_log_start_offset(min(log.log_start_offset, log.high_watermark))
            else:
                await chance.choice(readers).fetch(c)
        assert c[1].log(0).high_watermark > 0
        assert len(c[1].partition(0)._at_watermark) <= 2

    wired(scenario, brokers=2)
