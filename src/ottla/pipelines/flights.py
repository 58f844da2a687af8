"""The flights job: topic to Parquet, then delays per carrier; the result is one line of JSON.

Who may call: anybody, as a program: `python -m ottla.pipelines.flights --help`; the demo does.
Invariants: stdout carries the result alone; exit code 1 and one line on stderr if it failed.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ottla.log.files import OsFiles
from ottla.model.errors import ErrorCode, UnknownTopicError
from ottla.net import runtime
from ottla.net.client import Client
from ottla.pipelines import job
from ottla.pipelines.delays import delays_per_carrier
from ottla.pipelines.session import start_session
from ottla.pipelines.to_parquet import land

ASK_TIMEOUT_S = 10.0


async def _check(bootstrap: str, topic: str) -> None:
    """Ask for the topic first: Spark would try for minutes to reach a cluster that is not there."""
    client = Client(runtime.real_world(OsFiles()), bootstrap, "pipelines", timeout_s=ASK_TIMEOUT_S)
    try:
        found = (await client.metadata([topic])).topics[0]
    finally:
        await client.close()
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicError(f"topic {topic} does not exist at {bootstrap}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code."""
    parser = job.parser("flights", "Land a topic of flights in Parquet, then delays per carrier.")
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,…]")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--lake", required=True, type=Path, help="folder of the Parquet files")
    parser.add_argument("--checkpoint", type=Path, help="[beside the lake]")
    options = parser.parse_args(arguments)
    return job.run("flights", lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    lake: Path = options.lake.absolute()
    checkpoint = options.checkpoint or lake.with_name(lake.name + "-checkpoint")
    started = time.monotonic()
    runtime.run(_check, options.bootstrap_server, options.topic)
    title = f"{options.topic} to Parquet"
    spark = start_session(title, job.wanted_of(options), connector=True)
    ready = time.monotonic()
    try:
        landed = land(spark, options.bootstrap_server, options.topic, lake, checkpoint.absolute())
        delays = delays_per_carrier(spark, lake)
    finally:
        spark.stop()
    result = {
        **asdict(landed),
        "exactly_once": landed.exactly_once,
        "session_s": round(ready - started, 1),
        "job_s": round(time.monotonic() - ready, 1),
        "delays": [d.as_dict() for d in delays],
    }
    sys.stdout.write(json.dumps(result) + "\n")
    return job.EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
