"""The client of chaos, which writes: what it would write to, and whether a topic is created for it.

Invariants: a topic is created only where the preview said so. To stop the client needs no preview:
it changes nothing of the cluster.
"""

from starlette.responses import Response

from ottla.client import topics
from ottla.console.asked import Asked
from ottla.console.changes.preview import Preview, preview
from ottla.console.page import Page, redirect
from ottla.console.pages.chaos import PROBE_TOPIC, local
from ottla.console.probe import EVERY_S, LONGEST_S, MOST_PARTITIONS
from ottla.console.state import Console
from ottla.model.errors import ErrorCode, OttlaError, UnknownTopicError
from ottla.model.printable import plural

BACK = "/chaos"
PARTITIONS = 6
MOST_REPLICAS = 3
SETTINGS = {"retention.ms": "3600000", "min.insync.replicas": "1"}


async def probe(console: Console, asked: Asked) -> Page | Response:
    """Return what the client would write to; with `do`, begin it; with `stop`, stop it."""
    local(console)
    if asked.has("stop"):
        await console.probe.stop()
        return redirect(BACK)
    topic = asked.needed("topic")
    partitions = await _partitions(console, topic)
    replicas = min(MOST_REPLICAS, len(await console.client.broker_ids()))
    if asked.has("do"):
        if partitions is None and asked.has("create"):
            await _create(console, topic, replicas)
        elif partitions is None:
            raise UnknownTopicError(f"topic {topic} no longer exists; reload the page")
        await console.probe.begin(topic)
        return redirect(BACK)
    creates = partitions is None
    count = PARTITIONS if partitions is None else partitions
    lanes, rate = min(count, MOST_PARTITIONS), round(1 / EVERY_S)
    settings = ", ".join(f"{key}={value}" for key, value in SETTINGS.items())
    writes = (
        f"Produces {rate} small records per second to each of {plural(lanes, 'partition')}, with "
        f"acks=all, until stopped or for {LONGEST_S / 60:g} min. The records stay in the topic."
    )
    return preview(
        Preview(
            "Start the probe",
            [writes, "The topic is created."] if creates else [writes],
            ("topic", "partitions", "replicas", "settings"),
            [(topic, count, replicas, settings) if creates else (topic, count, "as now", "as now")],
            "/chaos/probe",
            [("topic", topic), *([("create", "1")] if creates else [])],
            "Create the topic and start" if creates else "Start",
            BACK,
        )
    )


async def _partitions(console: Console, topic: str) -> int | None:
    """Return how many it has; None for the usual topic if it is not there yet."""
    try:
        return len((await topics.describe_topic(console.client, topic)).partitions)
    except UnknownTopicError:
        if topic != PROBE_TOPIC:
            raise
        return None


async def _create(console: Console, topic: str, replicas: int) -> None:
    try:
        await topics.create_topic(
            console.client,
            topic,
            partitions=PARTITIONS,
            replication_factor=replicas,
            settings=SETTINGS,
        )
    except OttlaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
