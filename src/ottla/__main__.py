"""The front door: `broker run` or `zookeeper run` a server, `pipeline …` Spark; or a command.

Invariants: the way to a broker imports no command-line or Spark library, so that it starts fast and
stays small; whatever is wrong in the world is one line on stderr and exit code 1 (2: bad usage).
"""

# No import but of what an interpreter has loaded: Ctrl-C is not handled before `main`.
import gc
import os
import sys


def main() -> int:
    """Run one command and return the process's exit code."""
    try:
        _open_standard_streams()
        try:
            from ottla.model import posix  # noqa: F401 - before anything that needs it
        except ImportError as error:
            sys.stderr.write(f"ottla: {error}\n")
            return 1
        return _run()
    except KeyboardInterrupt:  # while modules are imported: a command handles its own
        sys.stderr.write("ottla: interrupted\n")
        sys.stderr.flush()
        os._exit(130)  # the interpreter may end itself by the signal, though it was caught


def _open_standard_streams() -> None:
    """Open /dev/null for each standard stream that is closed, as under cron.

    A socket would get its number otherwise, and libuv ends a process that closes one of those.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    # Python left those out that were closed when it started.
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _run() -> int:
    if sys.argv[1:3] == ["broker", "fork"]:
        # At once: on Linux sessions share the processor, whatever runs in each (autogroup).
        try:  # noqa: SIM105 - contextlib is not loaded
            os.setsid()
        except PermissionError:
            pass  # it has one
        gc.disable()
        from ottla.local.fork_server import main as fork_main

        return fork_main(sys.argv[3:])
    arguments = _of_server("broker")
    if arguments is not None:
        gc.disable()  # what modules make stays; `net.garbage` enables it when they are loaded
        from ottla.broker.process import main as broker_main

        return broker_main(arguments)
    arguments = _of_server("zookeeper")
    if arguments is not None:
        gc.disable()
        from ottla.broker.zookeeper_process import main as zookeeper_main

        return zookeeper_main(arguments)
    if sys.argv[1:2] == ["pipeline"] or sys.argv[1:3] == ["zookeeper", "copy"]:
        from ottla.cli.grammar import run

        return run(sys.argv[1:])  # programs of their own: signals and output are theirs
    if sys.argv[1:2] == ["up"] and not {"-h", "--help"} & set(sys.argv):
        return _up()
    return _command()


def _command() -> int:
    from ottla.cli.grammar import main as command

    return command()


def _up() -> int:
    """Start brokers' imports first: they take longer than all else."""
    from ottla.local import fork_process

    fork_process.begin()
    try:
        code = _command()
    finally:
        fork_process.discard()
    # All is said and written: the interpreter's own end would take as long as its start.
    sys.stderr.flush()
    os._exit(code)


def _of_server(name: str) -> list[str] | None:
    """Return what follows `broker run`, or `broker` where options follow; None for other words."""
    command, *words = sys.argv[1:] or [""]
    if command != name or not words:
        return None
    if words[0] == "run":
        return words[1:]
    return words if words[0].startswith("-") and words[0] not in ("-h", "--help") else None


if __name__ == "__main__":
    sys.exit(main())
