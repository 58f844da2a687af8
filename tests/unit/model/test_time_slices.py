"""Time slices: others run when one is over, and only then."""

import asyncio

import pytest

from ottla.model.time_slices import InTimeSlices, TimeSlice, run_in_time_slices, yield_to_loop


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.slice_s = 0.008

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        raise AssertionError("a time slice is measured on the monotonic clock")


class Neighbour:
    """Counts its turns on the loop until it is cancelled."""

    def __init__(self) -> None:
        self.turns = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)

    async def end(self) -> None:
        self._task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._task


def run(main):
    async def bounded():
        async with asyncio.timeout(10):
            return await main()

    return asyncio.run(bounded())


def test_a_checkpoint_yields_only_when_the_slice_is_over():
    async def main():
        clock, neighbour = ManualClock(), Neighbour()
        clock.slice_s = 0.5
        time_slice = TimeSlice(clock)
        clock.now_s += 0.25
        assert not await time_slice.checkpoint()
        assert neighbour.turns == 0
        clock.now_s += 0.25
        assert time_slice.over
        assert await time_slice.checkpoint()
        assert neighbour.turns == 1
        assert not time_slice.over  # another one has begun
        clock.now_s += 0.5
        time_slice.restart()
        assert not time_slice.over
        await neighbour.end()

    run(main)


def test_items_come_in_order_with_yields_in_between():
    async def main():
        clock, neighbour = ManualClock(), Neighbour()
        found = []
        async for item in InTimeSlices(range(6), clock):
            found.append((item, neighbour.turns))
            clock.now_s += 0.005  # two items take more than a slice
        assert found == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)]
        await neighbour.end()

    run(main)


def test_a_generator_runs_to_its_end_and_returns_its_result():
    async def main():
        clock, neighbour = ManualClock(), Neighbour()
        seen = []

        def steps():
            for number in range(4):
                seen.append((number, neighbour.turns))
                clock.now_s += 0.005
                yield
            return "result"

        assert await run_in_time_slices(steps(), clock) == "result"
        assert seen == [(0, 0), (1, 0), (2, 1), (3, 1)]
        await neighbour.end()

    run(main)


def test_an_error_of_a_generator_is_raised():
    def steps():
        yield
        raise ValueError("a step failed")

    with pytest.raises(ValueError, match="a step failed"):
        run(lambda: run_in_time_slices(steps(), ManualClock()))


def test_yield_to_loop_always_yields():
    async def main():
        neighbour = Neighbour()
        await yield_to_loop()
        assert neighbour.turns == 1
        await neighbour.end()

    run(main)
