"""Distinguished names: the subject of an X.509 certificate as Java writes it (RFC 2253).

A decider: bytes in, text out. The certificate was verified before: its encoding is DER. Java:
`X500Principal.getName()`, whose text is a principal's name in ACLs, so each character counts.
"""

from collections.abc import Iterator

from ottla.model.errors import WireError

SEQUENCE, SET, OBJECT_IDENTIFIER, CONTEXT_0 = 0x30, 0x31, 0x06, 0xA0

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Attributes that RFC 2253 has a name for; Java writes all others as numbers and hex digits."""

TEXTS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString: Java takes the bytes
of each as UTF-8, those of the two-byte one too."""
ESCAPED = ',=+<>#;"\\'


def subject_text(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, its last relative name first; WireError."""
    ((_, whole, _),) = _elements(certificate)
    _, signed, _ = next(_elements(whole))
    fields = list(_elements(signed))
    if fields and fields[0][0] == CONTEXT_0:  # the version
        fields = fields[1:]
    # serialNumber, signature, issuer, validity, subject
    if len(fields) < 5:
        raise WireError("a certificate without a subject")
    return name_text(fields[4][1])


def name_text(name: bytes) -> str:
    """Return the text of the content of a Name."""
    relative = [_relative_text(content) for _, content, _ in _elements(name)]
    return ",".join(reversed(relative))


def _relative_text(attributes: bytes) -> str:
    texts = []
    for _, pair, _ in _elements(attributes):
        (_, identifier, _), (tag, value, whole) = _elements(pair)
        number = _dotted(identifier)
        keyword = KEYWORDS.get(number)
        if keyword is None or tag not in TEXTS:
            texts.append(f"{keyword or number}=#{whole.hex()}")
        else:
            text = value.decode("utf-8", "replace")
            texts.append(f"{keyword}={_escaped(text)}")
    return "+".join(texts)


def _escaped(text: str) -> str:
    """Escape as RFC 2253 asks for: special characters, and spaces at both ends."""
    begin = len(text) - len(text.lstrip(" \r"))
    end = len(text.rstrip(" \r"))
    out = []
    for i, char in enumerate(text):
        if char == "\0":
            out.append("\\00")
        elif char in ESCAPED or not begin <= i < end:
            out.append(f"\\{char}")
        else:
            out.append(char)
    return "".join(out)


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (tag, content, whole element) of each DER element; WireError where it is none."""
    position = 0
    while position < len(data):
        begin = position
        head = data[position : position + 2]
        if len(head) < 2 or head[0] & 0x1F == 0x1F:
            raise WireError("a DER element without a length")
        length, position = head[1], position + 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4:
                raise WireError(f"a DER length of {count} bytes")
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + length
        if end > len(data):
            raise WireError("a DER element beyond its end")
        yield head[0], data[position:end], data[begin:end]
        position = end


def _dotted(identifier: bytes) -> str:
    """Return an object identifier as numbers with dots."""
    numbers = []
    number = 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise WireError("an empty object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
