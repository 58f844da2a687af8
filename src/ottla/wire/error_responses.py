"""Error responses: one error in the shape of an API's response, as the schemas have it.

Kafka: the `getErrorResponse` of its request classes.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ottla.wire.schema import FieldLayout, Message, WireStruct

Made = Callable[[Message, int, int, "str | None"], Message]
"""(request, version, error code, message) -> the response"""


def error_response(
    response: type[Message], asked: str = "", responded: str | None = None, **constants: Any
) -> Made:
    """Return a builder of a response that says an error once for each element of a request.

    `asked` and `responded` are the paths of the lists of elements in the request and in the
    response (as in the request); without them the error is said once, at the top. An item of the
    response has what identifies its element, and the innermost one the error and the constants.
    """
    path = asked.split(".") if asked else []
    to = path if responded is None else responded.split(".")
    # Where the request's lists are deeper than the response's, the outermost become one.
    ahead = max(len(path) - len(to), 0)
    levels = [path[: ahead + 1], *([name] for name in path[ahead + 1 :])]

    def made(request: Message, _version: int, code: int, message: str | None) -> Message:
        found: Message = _answer(response, request, levels, to, (code, message), constants)
        return found

    return made


def by_version(first: int, newer: Made, older: Made) -> Made:
    """Return a builder for responses that have another shape from a version on."""
    return lambda request, version, code, message: (newer if version >= first else older)(
        request, version, code, message
    )


def _answer(
    cls: type[WireStruct],
    element: Any,
    levels: Sequence[Sequence[str]],
    to: Sequence[str],
    error: tuple[int, str | None],
    constants: dict[str, Any],
) -> Any:
    """Return what is answered about a request, or about an element of it."""
    kind: Any = type(element)
    values = {name: getattr(element, of) if of else element for name, of in _key(cls, kind)}
    if not to:
        return cls(**(values | _error(cls, error) | constants))
    elements = [element]
    for name in levels[0]:
        elements = [inner for outer in elements for inner in getattr(outer, name) or ()]
    (field,) = (f for f in cls.LAYOUT.fields if f.name == to[0])
    assert field.struct is not None, f"{cls.__name__}.{field.name} is not a list of structs"
    item = field.struct.made
    values[to[0]] = [_answer(item, e, levels[1:], to[1:], error, constants) for e in elements]
    return cls(**values)


def _error(cls: type[WireStruct], error: tuple[int, str | None]) -> dict[str, Any]:
    return {
        field.name: error[field.type == "string"]
        for field in cls.LAYOUT.fields
        if _says_error(field)
    }


def _says_error(field: FieldLayout) -> bool:
    return field.name in ("error_code", "partition_error_code", "error_message")


@cache
def _key(cls: type[WireStruct], element: Any) -> tuple[tuple[str, str], ...]:
    """Return which fields of an item identify its element, and what they are in the element.

    They lead in both, by the same names or, the first, by another; "" is an element that is a
    number or a name.
    """
    if issubclass(cls, Message):
        return ()
    own = [f for f in cls.LAYOUT.fields if not _says_error(f) and f.struct is None]
    if not (isinstance(element, type) and issubclass(element, WireStruct)):
        return ((own[0].name, ""),)
    found: list[tuple[str, str]] = []
    for mine, its in zip(own, element.LAYOUT.fields, strict=False):
        same = mine.name == its.name or (not found and (mine.type, its.array) == (its.type, False))
        if not same:
            break
        found.append((mine.name, its.name))
    return tuple(found)
