"""A job that is asked to stop, stops: also where the exception of the signal's handler is lost."""

import contextlib
import io
import os
import signal
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

import pytest

from ottla.pipelines import interrupts, job, replay
from ottla.pipelines.lake import command as lake
from ottla.pipelines.lake.landing import Landing
from ottla.pipelines.replaying.rounds import Rounds

MOST_ROUNDS = 20


class CutShortError(Exception):
    """What py4j makes of an interrupt, without its cause: Py4JNetworkError."""


def lost(number):
    """Send this process a signal where its handler's exception is dropped: in a destructor."""

    class Dropped:
        def __del__(self):
            os.kill(os.getpid(), number)
            for _ in range(1000):  # handlers run between instructions
                pass

    Dropped()


def cut_short(number):
    """Send this process a signal where another exception takes the place of the handler's."""
    try:
        os.kill(os.getpid(), number)
        for _ in range(1000):
            pass
    except KeyboardInterrupt:
        pass
    raise CutShortError


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_a_signal_is_noted_where_its_exception_is_lost(number):
    def work():
        interrupts.check()
        lost(number)
        interrupts.check()
        pytest.fail("a second time")

    before = signal.getsignal(number)
    with redirect_stderr(io.StringIO()) as errors:
        assert job.run("x", work) == 130
    assert errors.getvalue().endswith("pipeline x: interrupted\n")
    assert signal.getsignal(number) is before
    assert job.run("x", interrupts.check) is None, "the next job starts without it"


def test_spark_s_handler_is_called_after_the_signal_is_noted():
    called = []

    def work():
        signal.signal(signal.SIGINT, lambda number, _: called.append(number))
        interrupts.note_before(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass
        assert called == [signal.SIGINT]
        interrupts.check()

    assert job.run("x", work) == 130


def test_a_failure_without_a_signal_is_one():
    def work():
        raise CutShortError("a worker was lost")

    with redirect_stderr(io.StringIO()) as errors:
        assert job.run("x", work) == 1
    assert errors.getvalue() == "pipeline x: CutShortError: a worker was lost\n"


class Following:
    """Rounds that never end; a signal comes in the third and is not seen as one."""

    poll_seconds = 0

    def __init__(self, comes):
        self._comes = comes
        self.rounds = 0

    def open(self):
        pass

    def check(self, accept):
        return []

    def refresh(self):
        return {}

    def copy_next(self, ends):
        self.rounds += 1
        assert self.rounds < MOST_ROUNDS
        if self.rounds == 3:
            self._comes(signal.SIGTERM)
        return False

    def result(self):
        return {"rounds": self.rounds}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("comes", [lost, cut_short])
def test_a_mirror_stops_with_its_result(comes):
    options = replay.MirrorOptions(config="unused")
    rounds = Following(comes)
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
        assert job.run("mirror", lambda: replay._copied(rounds, options, replay.MIRROR)) == 0
    assert out.getvalue() == '{"rounds": 3, "exactly_once": true}\n'
    assert "pipeline mirror: interrupted; what is committed stays" in errors.getvalue()


def test_a_round_that_an_interrupt_cut_short_is_not_tried_again(monkeypatch):
    """Without what is noted it was a lost worker: copied again, and the mirror went on for ever."""
    tries = []

    def save(self, new, batch):
        tries.append(batch)
        cut_short(signal.SIGTERM)

    monkeypatch.setattr(Rounds, "_save", save)
    rounds = Rounds(SimpleNamespace(replay=None, target=None, source=None))
    with redirect_stderr(io.StringIO()):
        assert job.run("mirror", lambda: rounds._write(None, 7)) == 130
    assert tries == [7]


def test_a_batch_that_an_interrupt_cut_short_is_not_tried_again(monkeypatch):
    pytest.importorskip("pyspark")
    tries = []

    def land(self, spark, batch):
        tries.append(batch)
        cut_short(signal.SIGTERM)

    monkeypatch.setattr(Landing, "missing", lambda self, ends: {0: "a span"})
    monkeypatch.setattr(Landing, "_skip", lambda self, todo: None)
    monkeypatch.setattr(Landing, "_land", land)
    landing = Landing.__new__(Landing)
    landing._patience_s = 60
    with redirect_stderr(io.StringIO()):
        assert job.run("lake", lambda: landing.land_next(None, {})) == 130
    assert len(tries) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("comes", [lost, cut_short])
def test_a_lake_that_follows_stops(comes):
    class Idle:
        rounds = 0
        rows = SimpleNamespace(refresh=lambda: None)

        def lag(self, ends):
            return 0

        def land_next(self, spark, ends):
            self.rounds += 1
            assert self.rounds < MOST_ROUNDS
            if self.rounds == 3:
                comes(signal.SIGTERM)

    landing = Idle()
    following = SimpleNamespace(
        _landings={"t": landing}, _ends={"t": {}}, _reached=contextlib.nullcontext,
        _look=lambda _: None, _metrics=SimpleNamespace(update=lambda *_: None),
        _settings=SimpleNamespace(lake=SimpleNamespace(poll_seconds=0)),
    )  # fmt: skip
    with redirect_stderr(io.StringIO()) as errors:
        job.run("lake", lambda: lake.Run._follow(following, None))
    assert landing.rounds == 3, errors.getvalue()
    assert errors.getvalue().endswith("pipeline lake: interrupted; what is committed stays\n")
