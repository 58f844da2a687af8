"""Request portions: a request about very many things is cut into small ones, the responses joined.

Pure, but for the work it is. Invariants: each element of the request is in exactly one portion, in
the request's order, within copies of what it lay in; elements that an API refuses when they are
named twice stay together, so that they are refused as before; a joined response has one entry for
each topic (or group), as a response to the whole request has.
"""

from collections.abc import Callable, Generator, Iterator
from copy import copy
from typing import Any, NamedTuple

from ottla.model.errors import WireError
from ottla.wire.codec import MAX_ELEMENTS_AT_ONCE
from ottla.wire.schema import Message


def field(message: object, name: str) -> Any:
    """Return a field of a message, or of a part of one, by its name in the schema."""
    return getattr(message, name)


def elements(message: object, name: str) -> list[Any]:
    """Return a list of a message; one that is null has no elements."""
    found: list[Any] | None = getattr(message, name)
    return [] if found is None else found


def with_elements(message: Any, name: str, found: list[Any]) -> Any:
    """Return a copy of a message, or of a part of one, with other elements in a list."""
    made = copy(message)
    setattr(made, name, found)
    return made


STEP = 512
"""elements looked at between two chances to let others run"""

_NOTHING = object()
"""in the place of an element: a topic without partitions is to be answered, too"""


class Shape(NamedTuple):
    """Where the elements of a request are, and those of its response: paths of lists."""

    asked: tuple[str, ...]
    responded: tuple[str, ...]
    unique: int
    """the number of fields that two elements must not both have alike, 0 if it may be all"""
    many: int
    """a request about more things than this is cut"""
    once: Callable[[Any], object] | None = None
    """What an element is known by, if what is named again is left out: it would be answered once
    in a portion, too."""


MANY = 256
MANY_CHANGES = 2_000
"""What is written or waited for is handled as a whole, unless there is very much of it."""


class InPortions(NamedTuple):
    """A request about too many things is cut, and handled a few of them at a time.

    `shapes`: from which version on it is cut how, the newest first. Not for requests about things
    that depend on each other (JoinGroup; AddPartitionsToTxn: all or nothing).
    """

    shapes: tuple[tuple[int, Shape], ...]

    def shape(self, version: int) -> Shape | None:
        """Return how a request of this version is cut, None if it is not."""
        return next((shape for first, shape in self.shapes if version >= first), None)


def in_portions(
    asked: str,
    responded: str,
    *,
    unique: int = 0,
    many: int = MANY,
    once: Callable[[Any], object] | None = None,
    since: int = 0,
    older: InPortions | None = None,
) -> InPortions:
    """Say where the elements of a request and of its response are: lists of lists, by their names.

    `unique`, `many`, `once`: as in `Shape`. `since`: the first version that is cut so; `older`:
    those before it.
    """
    shape = Shape(tuple(asked.split(".")), tuple(responded.split(".")), unique, many, once)
    return InPortions(((since, shape), *(older.shapes if older is not None else ())))


BY_PARTITION = in_portions("topics.partitions", "topics.partitions")
CHANGES_BY_PARTITION = in_portions("topics.partitions", "topics.partitions", many=MANY_CHANGES)


def is_to_be_cut(request: Message, shape: Shape) -> bool:
    """Return whether a request is about too many things to handle it as a whole."""
    most = shape.many
    level = [request]
    for name in shape.asked[:-1]:
        found: list[Any] = []
        for parent in level:
            found += elements(parent, name)
            if len(found) > most:
                return True
        level = found
    count = len(level)
    for parent in level:
        count += len(elements(parent, shape.asked[-1]))
        if count > most + len(level):
            return True
    return False


_Element = tuple[tuple[Any, ...], Any]
"""what an element lies in, from the outside, and the element"""


def _elements(holder: Any, path: tuple[str, ...]) -> Iterator[_Element]:
    inside = getattr(holder, path[0])
    if len(path) == 1:
        for element in inside or (_NOTHING,):
            yield (), element
    elif inside:
        for parent in inside:
            for chain, element in _elements(parent, path[1:]):
                yield (parent, *chain), element
    else:
        yield (), _NOTHING


def _weight(element: Any) -> int:
    """Return what an element counts for: one, and one for each thing in its own lists."""
    fields = getattr(element, "__struct_fields__", ())
    inside = sum(len(v) for f in fields if type(v := getattr(element, f)) is list)
    if inside > MAX_ELEMENTS_AT_ONCE:
        raise WireError(f"one element of a request holds {inside} others")
    return 1 + inside


def _outer(chain: tuple[Any, ...]) -> tuple[object, ...]:
    return tuple(getattr(parent, _key_field(parent)) for parent in chain)


def _identity(element: _Element, count: int) -> object:
    """Return what must not be the same of two elements: their first fields, and where they lie."""
    chain, what = element
    fields = getattr(what, "__struct_fields__", None)
    if fields is None:
        return _outer(chain), what
    return _outer(chain), tuple(getattr(what, f) for f in fields[:count])


def itself(element: Any) -> object:
    """Return what a number or a name is known by: for `Shape.once`."""
    return element


def cut(request: Message, shape: Shape, size: list[int]) -> Generator[Any, None, None]:
    """Yield the request's portions, and None now and then so that others may run.

    A portion has elements of about `size[0]` in all; the holder of the list may change it.
    """
    twice: dict[object, list[_Element]] = {}
    if shape.unique:
        twice = yield from _named_twice(request, shape)
    some: list[_Element] = []
    weight = seen = 0
    named: set[object] = set()
    for element in _elements(request, shape.asked):
        seen += 1
        if not seen % STEP:
            yield None
        if shape.once is not None:
            chain, what = element
            identity = _outer(chain), shape.once(what)
            if identity in named:
                continue
            named.add(identity)
        if twice and _identity(element, shape.unique) in twice:
            continue
        some.append(element)
        weight += _weight(element[1])
        if weight >= size[0]:
            yield _portion(request, shape, some)
            some, weight = [], 0
    for group in twice.values():
        while group:
            # Never one alone: it would not be known to be named twice.
            count = STEP if len(group) != STEP + 1 else STEP + 1
            yield _portion(request, shape, group[:count])
            del group[:count]
    if some:
        yield _portion(request, shape, some)


def _named_twice(
    request: Message, shape: Shape
) -> Generator[None, None, dict[object, list[_Element]]]:
    seen: set[object] = set()
    twice: dict[object, list[_Element]] = {}
    for number, element in enumerate(_elements(request, shape.asked), 1):
        key = _identity(element, shape.unique)
        if key in seen:
            twice[key] = []
        seen.add(key)
        if not number % STEP:
            yield None
    if twice:
        for number, element in enumerate(_elements(request, shape.asked), 1):
            found = twice.get(_identity(element, shape.unique))
            if found is not None:
                found.append(element)
            if not number % STEP:
                yield None
    return twice


def _portion(request: Message, shape: Shape, elements: list[_Element]) -> Any:
    """Return a request about these elements only."""
    path = shape.asked
    whole = with_elements(request, path[0], [])
    opened: list[tuple[Any, Any]] = []
    """per level, what elements lie in, and its copy"""
    for chain, element in elements:
        holder = whole
        for depth, parent in enumerate(chain):
            if depth >= len(opened) or opened[depth][0] is not parent:
                made = copy(parent)
                inside = path[depth + 1]
                if getattr(made, inside) is not None:  # None asks for all there are
                    setattr(made, inside, [])
                getattr(holder, path[depth]).append(made)
                opened[depth:] = [(parent, made)]
            holder = opened[depth][1]
        if element is not _NOTHING:
            getattr(holder, path[len(chain)]).append(element)
    return whole


class Joined:
    """The responses to a request's portions as one."""

    def __init__(self, shape: Shape) -> None:
        self._path = shape.responded
        self._entries: dict[tuple[object, ...], Any] = {}
        self.response: Any = None

    def add(self, response: Message) -> None:
        """Take in the response to a portion."""
        if self.response is None:
            self.response = with_elements(response, self._path[0], [])
        self._take(self.response, response, (), self._path)

    def forget(self) -> Generator[None, None, None]:
        """Let the response go as `forget` does."""
        self._entries.clear()
        response, self.response = self.response, None
        if response is not None:
            yield from forget(response, self._path)

    def _take(
        self, whole: Any, part: Any, where: tuple[object, ...], path: tuple[str, ...]
    ) -> None:
        if getattr(part, "error_code", 0) and not whole.error_code:
            whole.error_code = part.error_code
        into, items = getattr(whole, path[0]), getattr(part, path[0]) or ()
        if len(path) == 1:
            into.extend(items)
            return
        for item in items:
            place = (*where, getattr(item, _key_field(item)))
            entry = self._entries.get(place)
            if entry is None:
                entry = self._entries[place] = with_elements(item, path[1], [])
                into.append(entry)
            self._take(entry, item, place, path[1:])


def forget(holder: Any, path: tuple[str, ...]) -> Generator[None, None, None]:
    """Empty the lists at a path, a little at a time: to free a million objects takes long, too.

    Not what lies in their elements: handlers and the state may share that.
    """
    items = getattr(holder, path[0])
    while items:
        if len(path) > 1:
            yield from forget(items[-1], path[1:])
        items.pop()
        if not len(items) % 32:
            yield


_key_fields: dict[type, str] = {}


def _key_field(item: Any) -> str:
    """Return the name of the field by which an entry is known: a topic's name, a group's id."""
    kind = type(item)
    found = _key_fields.get(kind)
    if found is None:
        fields = kind.LAYOUT.fields
        found = _key_fields[kind] = next(
            f.name for f in fields if f.type in ("string", "int64") and not f.array
        )
    return found
