"""Turns a message's layout into the source of a parse function for one version, and compiles it.

The function takes a memoryview and a position, returns (object, position after it). Everything is
inlined: one function per message version, runs of fixed-size fields unpacked by one `Struct`,
records and nothing else left as memoryview slices. Array counts are checked against the bytes that
are left before anything is allocated. Slices never raise, so a length beyond the end only moves the
position past it: the caller must check `position <= len(buf)` once, at the end. Kafka: the `read`
methods Kafka's message generator emits.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from struct import Struct, calcsize
from typing import Any

from ottla.wire import primitives
from ottla.wire.primitives import MAX_TAGGED_FIELDS
from ottla.wire.schema import FIXED, FieldLayout, StructLayout

Reader = Callable[[memoryview, int], tuple[Any, int]]
SlicedReader = Callable[[memoryview, int], Generator[int, None, tuple[Any, int]]]

SLICE = 512
"""Elements of arrays that a sliced function reads, or structs it writes, before it yields.

A sliced function that reads says how many it was since the last time. Of numbers `NUMBERS` count
for one: so much less time and memory they take."""

NUMBERS = 8


def compile_reader(layout: StructLayout, version: int, flexible: int | None) -> Reader:
    """Return the parse function of `layout` in `version`; `flexible` is the message's threshold."""
    read: Reader = _ReadSource(version, flexible).compile(layout)
    return read


def compile_sliced_reader(layout: StructLayout, version: int, flexible: int | None) -> SlicedReader:
    """Return the same as a generator, which yields now and then and returns (message, end).

    It yields how many elements of arrays it read since the last time.
    """
    read: SlicedReader = _ReadSource(version, flexible, sliced=True).compile(layout)
    return read


def minimum_size(layout: StructLayout, version: int, *, flexible: bool) -> int:
    """Return the fewest bytes a struct of this version takes."""
    total = 1 if flexible else 0
    for item in layout.fields:
        if not item.present(version) or (item.tag is not None and flexible):
            continue
        if item.array:
            total += 1 if flexible else 4
        elif item.type in FIXED:
            total += calcsize(">" + FIXED[item.type])
        elif item.struct is None:
            total += 1 if flexible else 2 if item.type == "string" else 4
        elif item.null_allowed(version):
            total += 1
        else:
            total += minimum_size(item.struct, version, flexible=flexible)
    return total


class Source:
    """Source lines of a function under construction, in one version of a message."""

    def __init__(self, version: int, flexible: int | None, *, sliced: bool = False) -> None:
        """`flexible`: the message's first flexible version."""
        self._version = version
        self._flexible = flexible is not None and version >= flexible
        self._sliced = sliced
        self._lines: list[str] = []
        self._depth = 1
        self._run: list[tuple[str, str]] = []
        self._names = 0
        self._env: dict[str, Any] = {}

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        """Write a line that others below it belong to."""
        self._line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def _name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _compiled(self, head: str, layout: StructLayout) -> Any:
        """Return the function of these lines. `head`: its name and arguments."""
        source = f"def {head}:\n" + "\n".join(self._lines) + "\n"
        function = head.partition("(")[0]
        name = f"<{function} {layout.name} v{self._version}>"
        exec(compile(source, name, "exec"), self._env)  # noqa: S102 - our own source, see above # nosec B102
        return self._env[function]


class _ReadSource(Source):
    """A parse function. `_run` holds fixed-size reads not written out yet: letter and name."""

    def compile(self, layout: StructLayout) -> Any:
        """Return a Reader, or a SlicedReader."""
        self._env |= {
            "UV": primitives.read_uvarint,
            "UV_TEXT": primitives.read_text_length,
            "SKIP": primitives.skip_tagged_fields,
            "BAD_COUNT": primitives.bad_count,
            "BAD_NULL": primitives.bad_null,
            "BAD_TAG": primitives.bad_tag,
            "MANY": _many_numbers,
        }
        self._line("E = len(b)")
        if self._sliced:
            self._line("n = 0")
            self._line("if 0: yield")  # a generator also where nothing repeats
        made = self._struct(layout)
        self._flush()
        self._line(f"return {made}, p")
        return self._compiled("read(b, p)", layout)

    # -- emitting ---------------------------------------------------------------------------

    def _fixed(self, letter: str) -> str:
        name = self._name()
        self._run.append((letter, name))
        return name

    def _flush(self) -> None:
        """Write out the pending fixed-size reads as one unpack."""
        run, self._run = self._run, []
        if not run:
            return
        if len(run) == 1 and run[0][0] == "B":
            self._line(f"{run[0][1]} = b[p]; p += 1")
            return
        letters = "".join(letter for letter, _name in run)
        unpack = "U_" + letters.replace("?", "o")
        self._env[unpack] = Struct(">" + letters).unpack_from
        targets = ", ".join(name for _letter, name in run)
        comma = "," if len(run) == 1 else ""
        self._line(f"{targets}{comma} = {unpack}(b, p); p += {calcsize('>' + letters)}")

    def _uvarint(self, long_form: str = "UV") -> str:
        """Read an unsigned varint; its first byte joins the pending run."""
        name = self._fixed("B")
        self._flush()
        self._line(f"if {name} > 127: {name}, p = {long_form}(b, p - 1)")
        return name

    # -- structs ----------------------------------------------------------------------------

    def _struct(self, layout: StructLayout) -> str:
        """Read all fields; return the expression that makes the object."""
        values: dict[str, str] = {}
        tagged: list[FieldLayout] = []
        for item in layout.fields:
            if not item.present(self._version):
                continue
            if item.tag is not None and self._flexible:
                tagged.append(item)
            else:
                values[item.name] = self._value(item, where=f"{layout.name}.{item.name}")
        if self._flexible:
            values |= self._tagged(layout, tagged)
        made = f"C_{layout.name}"
        self._env[made] = layout.made
        return f"{made}({self._arguments(layout, values)})"

    def _arguments(self, layout: StructLayout, values: dict[str, str]) -> str:
        """Pass what was read by position, with defaults in the gaps and nothing after the last."""
        last = max((i for i, f in enumerate(layout.fields) if f.name in values), default=-1)
        return ", ".join(
            values.get(item.name) or self._default(item) for item in layout.fields[: last + 1]
        )

    def _default(self, item: FieldLayout) -> str:
        if item.struct is not None and not item.array and item.default is None:
            if item.nullable is not None:
                return "None"
            self._env[f"C_{item.struct.name}"] = item.struct.made
            return f"C_{item.struct.name}()"
        if isinstance(item.default, bytes) and item.default:
            self._env["ZERO"] = item.default
            return "ZERO"
        return repr(item.default)

    def _tagged(self, layout: StructLayout, known: list[FieldLayout]) -> dict[str, str]:
        count = self._uvarint()
        if not known:
            self._line(f"if {count}: p = SKIP(b, p, {count})")
            return {}
        values = {item.name: self._name() for item in known}
        for item in known:
            self._line(f"{values[item.name]} = {self._default(item)}")
        self._line(
            f"if {count} * 2 > E - p or {count} > {MAX_TAGGED_FIELDS}: BAD_COUNT({count}, p)"
        )
        with self._block(f"for _ in range({count}):"):
            tag = self._uvarint()
            size = self._uvarint()
            stop = self._name()
            self._line(f"{stop} = p + {size}")
            word = "if"
            for item in known:
                with self._block(f"{word} {tag} == {item.tag}:"):
                    value = self._value(item, where=f"{layout.name}.{item.name}")
                    self._flush()
                    self._line(f"{values[item.name]} = {value}")
                    self._line(f"if p != {stop}: BAD_TAG({tag})")
                word = "elif"
            self._line(f"else: p = {stop}")
        return values

    # -- fields -----------------------------------------------------------------------------

    def _value(self, item: FieldLayout, where: str) -> str:
        """Read one field; return the name of the variable or the expression that holds it."""
        nullable = item.null_allowed(self._version)
        if item.array:
            return self._array(item, where, nullable=nullable)
        if item.type in FIXED:
            return self._fixed(FIXED[item.type])
        if item.struct is None:
            return self._bytes_like(item.type, where, nullable=nullable)
        if not nullable:
            return self._struct(item.struct)
        mark = self._fixed("b")
        self._flush()
        value = self._name()
        self._line(f"if {mark} < 0: {value} = None")
        with self._block("else:"):
            made = self._struct(item.struct)
            self._flush()
            self._line(f"{value} = {made}")
        return value

    def _length(self, letter: str) -> tuple[str, str]:
        """Read a length or count; return its name and the condition under which it means null.

        A compact length stays one too high, as on the wire: 0 is null.
        """
        if self._flexible:
            name = self._uvarint("UV_TEXT" if letter == "h" else "UV")
            return name, f"not {name}"
        name = self._fixed(letter)
        self._flush()
        return name, f"{name} < 0"

    def _bytes_like(self, type_: str, where: str, *, nullable: bool) -> str:
        size, is_null = self._length("h" if type_ == "string" else "i")
        value, stop = self._name(), self._name()
        cut = {
            "string": f"str(b[p:{stop}], 'utf-8')",
            "bytes": f"bytes(b[p:{stop}])",
            "records": f"b[p:{stop}]",
        }[type_]
        ahead = f"p + {size} - 1" if self._flexible else f"p + {size}"
        take = f"{stop} = {ahead}; {value} = {cut}; p = {stop}"
        if nullable:
            self._line(f"if {is_null}: {value} = None")
            self._line(f"else: {take}")
        else:
            self._line(f"if {is_null}: BAD_NULL({where!r})")
            self._line(take)
        return value

    def _array(self, item: FieldLayout, where: str, *, nullable: bool) -> str:
        count, is_null = self._length("i")
        value = self._name()
        if nullable:
            self._line(f"if {is_null}: {value} = None")
            self._line("else:")
            self._depth += 1
        else:
            self._line(f"if {is_null}: BAD_NULL({where!r})")
        if self._flexible:
            self._line(f"{count} -= 1")
        self._elements(item, count, value, where)
        if nullable:
            self._depth -= 1
        return value

    def _elements(self, item: FieldLayout, count: str, value: str, where: str) -> None:
        if item.type in FIXED:
            letter = FIXED[item.type]
            size = calcsize(">" + letter)
            readers = "A_" + letter.replace("?", "o")
            self._env[readers] = _array_readers(letter)
            self._line(f"if {count} * {size} > E - p: BAD_COUNT({count}, p)")
            read = f"{value} = [*{readers}[{count}](b, p)]"
            if self._sliced:
                self._line(f"if {count} <= {SLICE}: {read}; n += {count} // {NUMBERS}")
                self._line(f"else: {value} = yield from MANY({readers}, {count}, {size}, b, p)")
                self._line(f"p += {count} * {size}")
            else:
                self._line(f"{read}; p += {count} * {size}")
            return
        least = 1 if self._flexible else 2 if item.type == "string" else 4
        if item.struct is not None:
            least = minimum_size(item.struct, self._version, flexible=self._flexible)
        self._line(f"if {count} * {max(least, 1)} > E - p: BAD_COUNT({count}, p)")
        self._line(f"{value} = []")
        with self._block(f"for _ in range({count}):"):
            if item.struct is not None:
                made = self._struct(item.struct)
            else:
                made = self._bytes_like(item.type, where, nullable=False)
            self._flush()
            self._line(f"{value}.append({made})")
            if self._sliced:
                self._line("n += 1")
                self._line(f"if n >= {SLICE}: yield n; n = 0")


def _many_numbers(
    readers: primitives.ArrayReaders, count: int, size: int, buf: memoryview, pos: int
) -> Generator[int, None, list[Any]]:
    """Read an array of very many numbers; yields now and then."""
    found: list[Any] = []
    most = SLICE * NUMBERS
    while count > most:
        found += readers[most](buf, pos)
        pos += most * size
        count -= most
        yield SLICE
    found += readers[count](buf, pos)
    yield count // NUMBERS
    return found


_READERS: dict[str, primitives.ArrayReaders] = {}


def _array_readers(letter: str) -> primitives.ArrayReaders:
    return _READERS.setdefault(letter, primitives.ArrayReaders(letter))
