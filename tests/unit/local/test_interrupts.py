"""A command that is interrupted says so in one line and ends with 130, however often it is."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ottla.local import cluster, processes
from ottla.local.cluster_dir import ClusterDir, LocalBroker, LocalCluster, LocalZooKeeper

START = """
import os, signal, sys
from ottla.cli import grammar as cli
from ottla.model.process import ended_in_order
from ottla.cli.table import Node, load
number = signal.{name}
def again(code, leave=os._exit):
    os.kill(os.getpid(), number)  # a second one on the way out changes nothing
    sys.stderr.flush()
    leave(code)
os._exit = again
def command() -> None:
    {body}
sys.argv[1:] = ["nothing"]
sys.modules["ottla.nothing"] = sys.modules["__main__"]
load()[0].children["nothing"] = Node("", "nothing:command")
cli.main()
"""
AT_ONCE = """
    print("begun")
    try:
        sys.stdout.flush()
        os.kill(os.getpid(), number)
    finally:
        print("not reached")
"""
IN_ORDER = """
    with ended_in_order():
        try:
            os.kill(os.getpid(), number)
        finally:
            print("ended in order")
"""
IN_TEXT = """
    with ended_in_order():
        exec("os.kill(os.getpid(), number)")
"""
"""Python would end itself by SIGINT after this, though the exception was caught."""
IN_C = """
    import msgspec
    class Type(msgspec.Struct):
        number: "os.kill(os.getpid(), number) or int"
    msgspec.json.decode(b"{}", type=Type)
"""
"""msgspec evaluates annotations, and an exception amid that ended the process by SIGSEGV."""

IN_A_TASK = """
    import asyncio
    from ottla.net import runtime
    async def task():
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            print("cancelled")
            raise
    with ended_in_order():
        runtime.run(task)
"""
"""Throttles are removed there, for one: whatever the signal, the task has to hear of it."""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize(
    ("body", "printed"),
    [
        (AT_ONCE, "begun\n"),
        (IN_ORDER, "ended in order\n"),
        (IN_TEXT, ""),
        (IN_C, ""),
        (IN_A_TASK, "cancelled\n"),
    ],
    ids=["at once", "in order", "in text", "in C", "in a task"],
)
def test_an_interrupt_is_one_line_and_130(name, body, printed):
    code = START.format(name=name, body=body.strip().replace("{", "{{").replace("}", "}}"))
    code = code.replace("{{}}", "{}")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, printed, "ottla: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_until_a_started_broker_is_written_down(tmp_path, number):
    """`down` stops what cluster.json names: the demo left a broker that was not there yet."""
    folder = ClusterDir(tmp_path)
    folder.make()
    broker = LocalBroker(0, 9092)
    wanted = LocalCluster(LocalZooKeeper("127.0.0.1:2181"), [broker])
    me = os.getpid()

    def start(_arguments, _log):
        signal.raise_signal(number)
        return SimpleNamespace(pid=me, poll=lambda: None)

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(number, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            cluster.start_broker(folder, wanted, broker, start)
    finally:
        signal.signal(number, before)
    assert folder.existing().brokers[0].process == processes.identify(me)
