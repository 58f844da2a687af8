"""Turns a message's layout into the source of a write function for one version, and compiles it.

The function takes an object and a list, and appends the parts of its encoding: runs of fixed-size
fields (with int arrays between them) are one `pack`, strings one cached bytes object, records the
caller's own buffers. A value the version cannot carry is dropped where the schema allows it (`~`),
otherwise WireError, as Kafka's UnsupportedVersionException. Kafka: the `write` methods Kafka's
message generator emits.
"""

from collections.abc import Callable, Generator
from struct import Struct
from typing import Any

from ottla.wire import primitives
from ottla.wire.compile_read import SLICE, Source
from ottla.wire.schema import FIXED, FieldLayout, StructLayout

Writer = Callable[[Any, list[Any]], None]
SlicedWriter = Callable[[Any, list[Any]], Generator[None, None, None]]


def compile_writer(layout: StructLayout, version: int, flexible: int | None) -> Writer:
    """Return the write function of `layout` in `version`; `flexible` is the message's threshold."""
    write: Writer = _WriteSource(version, flexible).compile(layout)
    return write


def compile_sliced_writer(layout: StructLayout, version: int, flexible: int | None) -> SlicedWriter:
    """Return the same as a generator, which yields now and then."""
    write: SlicedWriter = _WriteSource(version, flexible, sliced=True).compile(layout)
    return write


class _WriteSource(Source):
    """A write function. `_run` holds values to be packed with the next flush.

    An entry of the run is (shape, expressions): a struct letter and one value, or `*letter` or
    `+letter` (see `RunPackers`) and the name of the list.
    """

    _out = "out"
    _parts = "parts"

    def compile(self, layout: StructLayout) -> Any:
        """Return a Writer, or a SlicedWriter."""
        self._env |= {
            "UVARINT": primitives.uvarint,
            "BYTE": primitives.ONE_BYTE,
            "BAD_NULL": primitives.bad_null,
            "NOT_IN_VERSION": primitives.not_in_version,
            "SC": primitives.COMPACT_STRINGS,
            "SCN": primitives.COMPACT_NULLABLE_STRINGS,
            "SL": primitives.LEGACY_STRINGS,
            "SLN": primitives.LEGACY_NULLABLE_STRINGS,
        }
        self._line("out = parts.append")
        if self._sliced:
            self._line("n = 0")
        self._struct(layout, "o")
        self._flush()
        return self._compiled("write(o, parts)", layout)

    # -- emitting ---------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write out the pending run as one pack."""
        run, self._run = self._run, []
        if run:
            self._line(f"{self._out}({self._packed(run)})")

    def _packed(self, run: list[tuple[str, str]]) -> str:
        """Return the expression of a run's bytes."""
        arrays = [name for shape, name in run if shape[0] in "*+"]
        if arrays:
            packers = f"D{len(self._env)}"
            self._env[packers] = primitives.RunPackers(tuple(shape for shape, _name in run))
            values = []
            for shape, name in run:
                count = {"*": f"len({name}), *", "+": f"len({name}) + 1, *"}.get(shape[0], "")
                values.append(count + name)
            lengths = ", ".join(f"len({name})" for name in arrays)
            return f"{packers}[{lengths}]({', '.join(values)})"
        letters = "".join(shape for shape, _name in run)
        if all(name.lstrip("-").isdigit() for _shape, name in run):
            return repr(Struct(">" + letters).pack(*(int(name) for _shape, name in run)))
        pack = "P_" + letters.replace("?", "o")
        self._env[pack] = Struct(">" + letters).pack
        return f"{pack}({', '.join(name for _shape, name in run)})"

    def _count(self, expression: str, letter: str) -> None:
        """Write a length or count (compact: one too high) together with the pending run."""
        if not self._flexible:
            self._run.append((letter, expression))
            self._flush()
            return
        name = self._name()
        self._line(f"{name} = {expression} + 1")
        run, self._run = self._run, []
        short = self._packed([*run, ("B", name)]) if run else f"BYTE[{name}]"
        self._line(f"if {name} < 128: {self._out}({short})")
        if run:
            self._line(f"else: {self._out}({self._packed(run)}); {self._out}(UVARINT({name}))")
        else:
            self._line(f"else: {self._out}(UVARINT({name}))")

    def _null(self, letter: str) -> None:
        self._run.append(("B", "0") if self._flexible else (letter, "-1"))
        self._flush()

    # -- structs ----------------------------------------------------------------------------

    def _struct(self, layout: StructLayout, subject: str) -> None:
        tagged: list[FieldLayout] = []
        for item in layout.fields:
            where = f"{layout.name}.{item.name}"
            if not item.present(self._version):
                if not item.ignorable:
                    condition = self._differs(item, f"{subject}.{item.name}")
                    self._line(f"if {condition}: NOT_IN_VERSION({where!r}, {self._version})")
            elif item.tag is not None and self._flexible:
                tagged.append(item)
            else:
                self._value(item, f"{subject}.{item.name}", where)
        if self._flexible:
            self._tagged(tagged, subject, layout.name)

    def _differs(self, item: FieldLayout, expression: str) -> str:
        """Return the condition that a field does not hold its default."""
        if item.default is None and item.type != "records":
            if item.struct is None or item.nullable is not None or item.array:
                return f"{expression} is not None"
            default = f"N_{item.struct.name}"
            self._env[default] = item.struct.made()
            return f"{expression} != {default}"
        if item.type == "records":
            return f"{expression} is not None"
        if item.array:
            if item.nullable is not None:
                return f"{expression} is None or {expression}"
            return expression
        if item.type == "uuid":
            self._env["ZERO"] = item.default
            return f"{expression} != ZERO"
        return f"{expression} != {item.default!r}"

    def _tagged(self, known: list[FieldLayout], subject: str, owner: str) -> None:
        if not known:
            self._run.append(("B", "0"))
            return
        self._flush()
        conditions = {item.name: self._name() for item in known}
        for item in known:
            condition = self._differs(item, f"{subject}.{item.name}")
            self._line(f"{conditions[item.name]} = bool({condition})")
        count = self._name()
        self._line(f"{count} = {' + '.join(conditions.values())}")
        self._line(f"{self._out}(BYTE[{count}])")
        with self._block(f"if {count}:"):
            for item in known:
                with self._block(f"if {conditions[item.name]}:"):
                    self._tagged_value(item, f"{subject}.{item.name}", f"{owner}.{item.name}")

    def _tagged_value(self, item: FieldLayout, expression: str, where: str) -> None:
        """Write tag, size and value; the value goes to a list of its own to learn its size."""
        outer_out, outer_parts = self._out, self._parts
        self._parts, self._out = self._name(), self._name()
        self._line(f"{self._parts} = []; {self._out} = {self._parts}.append")
        self._value(item, expression, where)
        self._flush()
        size = f"UVARINT(sum(map(len, {self._parts})))"
        tag = primitives.uvarint(item.tag or 0)
        self._line(f"{outer_out}({tag!r} + {size}); {outer_parts} += {self._parts}")
        self._out, self._parts = outer_out, outer_parts

    # -- fields -----------------------------------------------------------------------------

    def _value(self, item: FieldLayout, expression: str, where: str) -> None:
        nullable = item.null_allowed(self._version)
        if item.array:
            self._array(item, expression, where, nullable=nullable)
        elif item.type in FIXED:
            self._run.append((FIXED[item.type], expression))
        elif item.type == "string":
            self._flush()
            self._line(f"{self._out}({self._strings(nullable=nullable)}[{expression}])")
        elif item.struct is None:
            self._bytes_like(item.type, expression, where, nullable=nullable)
        else:
            self._nested(item.struct, expression, nullable=nullable)

    def _strings(self, *, nullable: bool) -> str:
        return ("SC" if self._flexible else "SL") + ("N" if nullable else "")

    def _nested(self, layout: StructLayout, expression: str, *, nullable: bool) -> None:
        name = self._name()
        self._line(f"{name} = {expression}")
        if not nullable:
            self._struct(layout, name)
            return
        self._flush()
        self._line(f"if {name} is None: {self._out}(b'\\xff')")
        with self._block("else:"):
            self._run.append(("b", "1"))
            self._struct(layout, name)
            self._flush()

    def _unless_null(self, name: str, where: str, *, nullable: bool) -> None:
        """Write null, or open the block that writes the value (one level deeper)."""
        run = list(self._run)
        with self._block(f"if {name} is None:"):
            if nullable:
                self._null("i")
            else:
                self._line(f"BAD_NULL({where!r})")
        self._line("else:")
        self._depth += 1
        self._run = run

    def _bytes_like(self, type_: str, expression: str, where: str, *, nullable: bool) -> None:
        name = self._name()
        self._line(f"{name} = {expression}")
        self._unless_null(name, where, nullable=nullable)
        if type_ == "records":
            # A batch list from the log goes out as it is: several buffers, one length.
            run = list(self._run)
            with self._block(f"if type({name}) is list or type({name}) is tuple:"):
                size = self._name()
                self._line(f"{size} = sum(map(len, {name}))")
                self._count(size, "i")
                self._line(f"{self._parts} += {name}")
            self._line("else:")
            self._depth += 1
            self._run = run
        self._count(f"len({name})", "i")
        self._line(f"{self._out}({name})")
        self._depth -= 2 if type_ == "records" else 1

    def _array(self, item: FieldLayout, expression: str, where: str, *, nullable: bool) -> None:
        name = self._name()
        self._line(f"{name} = {expression}")
        if item.type in FIXED and not nullable:
            self._run.append((("+" if self._flexible else "*") + FIXED[item.type], name))
            return
        if nullable:
            self._unless_null(name, where, nullable=True)
        self._elements(item, name, where)
        if nullable:
            self._depth -= 1

    def _elements(self, item: FieldLayout, name: str, where: str) -> None:
        if item.type in FIXED:
            self._run.append((("+" if self._flexible else "*") + FIXED[item.type], name))
            self._flush()
            return
        self._count(f"len({name})", "i")
        element = self._name()
        if item.type == "string":
            strings = self._strings(nullable=False)
            self._line(f"{self._parts} += [{strings}[{element}] for {element} in {name}]")
            return
        with self._block(f"for {element} in {name}:"):
            if item.struct is not None:
                self._struct(item.struct, element)
            else:
                self._bytes_like(item.type, element, where, nullable=False)
            self._flush()
            if self._sliced and item.struct is not None:
                self._line("n += 1")
                self._line(f"if not n % {SLICE}: yield")
