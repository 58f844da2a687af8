"""Timed: when what happened to one request.

Kafka: the times of `RequestChannel.Request`.
"""

from collections.abc import Sequence

from ottla.model.ports import Buffer


class Timed:
    """When what happened to one request, in seconds of the monotonic clock."""

    __slots__ = (
        "arrived_s",
        "keeps_response",
        "kind",
        "noted",
        "parts",
        "responded_s",
        "returned_s",
        "started_s",
        "written_s",
    )

    def __init__(self, kind: int, started_s: float) -> None:
        self.kind = kind
        """Its API key, or what whoever times it tells apart beside these."""
        self.arrived_s = started_s
        """When all of it had come."""
        self.started_s = started_s
        """When it was dispatched."""
        self.returned_s = started_s
        """When its handler returned."""
        self.responded_s = started_s
        """When its response was complete."""
        self.written_s = started_s
        """When that began to be handed to the system."""
        self.noted: object = None
        """What whoever times it wants to keep of it."""
        self.keeps_response = False
        """Whether whoever times it wants to see its response."""
        self.parts: Sequence[Buffer] | None = None
        """Its response, if so."""
