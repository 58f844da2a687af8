"""The front door: `broker …` a server, `sim …` a simulated cluster, `pipeline …` Spark; or admin.

Invariants: the way to a broker imports no command-line or Spark library, so that it starts fast and
stays small; whatever is wrong in the world is one line on stderr and exit code 1 (2: bad usage).
"""

import sys


def main() -> int:
    """Run one command and return the process's exit code."""
    if sys.argv[1:2] == ["broker"]:
        from ottla.broker.process import main as broker_main  # noqa: PLC0415

        return broker_main(sys.argv[2:])
    if sys.argv[1:2] == ["sim"]:
        from ottla.sim.__main__ import main as sim_main  # noqa: PLC0415

        return sim_main(sys.argv[2:])
    if sys.argv[1:2] == ["pipeline"]:
        from ottla.pipelines.command import main as pipeline_main  # noqa: PLC0415

        return pipeline_main(sys.argv[2:])
    from ottla.admin import cli  # noqa: PLC0415
    from ottla.explain import commands  # noqa: PLC0415
    from ottla.pipelines import command as pipelines  # noqa: PLC0415

    commands.register(cli.app)
    pipelines.register(cli.app)
    return int(cli.main() or 0)


if __name__ == "__main__":
    sys.exit(main())
