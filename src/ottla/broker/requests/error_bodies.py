"""Error bodies: how an API says that the whole request failed.

Kafka: the `getErrorResponse` of Kafka's request classes.
"""

from collections.abc import Callable
from typing import Any

from ottla.wire.schema import Message

ForAnyRequest = Callable[[Message, int, int, "str | None"], Message]
"""An `api.ErrorBody` that finds what it needs of a request by the names of fields."""

NONE = -1
RESOURCE = {"resource_type": "resource_type", "resource_name": "resource_name"}


class Each:
    """A list of a response: an item for each of a request's.

    `field` of the response gets an `item` for each element of the request's `of` (a path: lists
    within lists become one). `copies` names what an item takes over, by the element's field; "" is
    the element itself. The items of the innermost list carry the constants and the error: in
    `code` and, with `message`, in error_message.
    """

    def __init__(
        self,
        field: str,
        item: Callable[..., Any],
        of: str,
        copies: dict[str, str],
        inner: "Each | None" = None,
        *,
        code: str = "error_code",
        message: bool = False,
        **constants: Any,
    ) -> None:
        self.field, self.inner = field, inner
        self._item, self._path, self._copies = item, of.split("."), copies
        self._code, self._message, self._constants = code, message, constants

    def items(self, request: Any, code: int, message: str | None) -> list[Any]:
        """Return the items for a request, or for an element of one."""
        elements = [request]
        for name in self._path:
            elements = [e for parent in elements for e in getattr(parent, name) or ()]
        return [self._respond(element, code, message) for element in elements]

    def _respond(self, element: Any, code: int, message: str | None) -> Any:
        values = {k: getattr(element, v) if v else element for k, v in self._copies.items()}
        if self.inner is not None:
            values[self.inner.field] = self.inner.items(element, code, message)
        else:
            values |= {self._code: code, **self._constants}
            if self._message:
                values["error_message"] = message
        return self._item(**values)

    def fields(self, request: Any, code: int, message: str | None) -> dict[str, Any]:
        """Return what the response's constructor takes."""
        return {self.field: self.items(request, code, message)}


def code_only(response: Callable[..., Message], **constants: Any) -> ForAnyRequest:
    """Return a builder for responses whose only error field is `error_code`."""
    return lambda _request, _version, code, _message: response(error_code=code, **constants)


def code_and_message(response: Callable[..., Message], **constants: Any) -> ForAnyRequest:
    """Return a builder for responses with `error_code` and `error_message` at the top."""
    return lambda _request, _version, code, message: response(
        error_code=code, error_message=message, **constants
    )


def for_each(response: Callable[..., Message], each: Each) -> ForAnyRequest:
    """Return a builder for responses that say the error once for each thing that was asked."""
    return lambda request, _version, code, message: response(**each.fields(request, code, message))


def by_version(first: int, newer: ForAnyRequest, older: ForAnyRequest) -> ForAnyRequest:
    """Return a builder for responses that have another shape from a version on."""
    return lambda request, version, code, message: (newer if version >= first else older)(
        request, version, code, message
    )


def for_each_partition(
    response: Callable[..., Message],
    topic: Callable[..., Any],
    partition: Callable[..., Any],
    *,
    index: tuple[str, str] = ("partition_index", "partition_index"),
    partitions: str = "partitions",
    **more: Any,
) -> ForAnyRequest:
    """Return a builder for responses of `topics` with `name` and `partitions`, as requests have.

    `index` are the names of a partition's number in the response and in the request ("" where the
    request has just numbers), `partitions` the request's list of them.
    """
    inner = Each("partitions", partition, partitions, dict([index]), **more)
    return for_each(response, Each("topics", topic, "topics", {"name": "name"}, inner))
