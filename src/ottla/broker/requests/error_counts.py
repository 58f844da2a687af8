"""Error counts: how often responses to each kind of request carried which error.

Invariants: each `error_code` that is sent counts once, `NONE` too, that of a response as those of
the topics and partitions in it; what a response in parts carried counts once. Kafka:
`RequestMetrics.markErrorMeter`, and `errorCounts` of its response classes.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from ottla.model.errors import ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.headers import RequestHeader
from ottla.wire.schema import Message, StructLayout

Tally = list[int]
"""Counts by error code; that of UNKNOWN_SERVER_ERROR, -1, is the last one."""

_ERRORS = ("error_code", "partition_error_code")
_NOT_COUNTED = {int(ApiKey.DELETE_ACLS): "matching_acls"}
"""Fields whose errors Kafka does not count either, by API."""
_Count = Callable[[Sequence[Any], Tally, int], None]
"""Counts the errors in several structs of one kind."""


class ErrorCounts:
    """The errors of all responses of one server."""

    def __init__(self) -> None:
        self._tallies: dict[int, Tally] = {}
        self._counted: dict[tuple[int, int], tuple[_Count, Tally]] = {}

    def count(self, header: RequestHeader, response: Message, by: int = 1) -> None:
        """Count the errors of a response; with `by=-1`, take them back."""
        kind = header.api_key, header.api_version
        found = self._counted.get(kind)
        if found is None:
            layout = response.LAYOUT
            counter = _counter(layout, kind[1], _NOT_COUNTED.get(kind[0])) or _count_nothing
            found = self._counted[kind] = counter, self.tally(kind[0])
        counter, tally = found
        counter((response,), tally, by)

    def tally(self, api_key: int) -> Tally:
        """Return the counts of an API, to add to."""
        found = self._tallies.get(api_key)
        if found is None:
            found = self._tallies[api_key] = [0] * (max(ErrorCode) + 2)
        return found

    def counts(self) -> Iterator[tuple[int, ErrorCode, int]]:
        """Yield (api key, error, how often) of what was ever sent."""
        for api_key, tally in sorted(self._tallies.items()):
            for error in ErrorCode:
                if tally[error]:
                    yield api_key, error, tally[error]


def _count_nothing(responses: Sequence[Any], tally: Tally, by: int) -> None:
    """Count the errors of a response that has none."""


def _counter(layout: StructLayout, version: int, left_out: str | None) -> _Count | None:
    """Return what counts the errors in a struct of a version, None if there are none in it."""
    present = [f for f in layout.fields if f.present(version) and f.name != left_out]
    own = next((attrgetter(f.name) for f in present if f.name in _ERRORS), None)
    inner = [
        (attrgetter(item.name), item.array, of_struct)
        for item in present
        if item.struct is not None
        and (of_struct := _counter(item.struct, version, left_out)) is not None
    ]
    if own is None and not inner:
        return None

    def count(items: Sequence[Any], tally: Tally, by: int) -> None:
        if own is not None:
            for error in map(own, items):
                tally[error] += by
        for get, is_array, count_all in inner:
            for found in map(get, items):
                if found:
                    count_all(found if is_array else (found,), tally, by)

    return count
