"""After the tests: looks for their passwords and private keys in all that the tests left behind.

    python tests/proofs/suite_secrets.py [FOLDER]

FOLDER: pytest's newest one by default. Looked for are the passwords that tests use (words of the
tests' code that end with "secret"), also in base64, hex and with escapes, and each line of each
private key in PEM. Passwords belong in settings (`*.properties`), keys in files of their own
(`*.pem`, `*.key`); all other files, logs among them, must be free of both. Prints where one stands;
exit code 1 then, 2 if nothing was found to look for.
"""

import argparse
import getpass
import re
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.secret_scan import forms  # tests are no package

TESTS = Path(__file__).parent.parent
PASSWORD = re.compile(r"""["']([a-z][-,= a-z]*secret)["']""")
KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\n(.*?)-----END", re.DOTALL)
SHORTEST_PASSWORD, SHORTEST_LINE = 8, 32
CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----\n(.*?)-----END", re.DOTALL)
BASE64 = re.compile(rb"[A-Za-z0-9+/=]{%d,}" % SHORTEST_LINE)
WHERE_KEYS_BELONG = {".pem", ".key"}
WHERE_PASSWORDS_BELONG = {".properties", ".py"}
SITE = ("site", "docs")
"""Copies of the documents, which have examples."""
PIECE = 8 << 20


def passwords() -> list[bytes]:
    """Return the passwords that the tests' code has."""
    found: set[str] = set()
    for file in TESTS.rglob("*.py"):
        found.update(PASSWORD.findall(file.read_text(encoding="utf-8")))
    return sorted(word.encode() for word in found if len(word) >= SHORTEST_PASSWORD)


def key_lines(files: list[Path]) -> set[bytes]:
    """Return the lines of private keys but for the first: keys of one kind begin alike.

    The last line may have nothing but the public key, as certificates do.
    """
    found: set[bytes] = set()
    public = b""
    for file in files:
        if file.suffix in WHERE_KEYS_BELONG | {".crt"}:
            data = file.read_bytes()
            public += b"".join(CERTIFICATE.findall(data))
            for key in KEY.findall(data):
                found.update(line for line in key.split()[1:] if len(line) >= SHORTEST_LINE)
    return {line for line in found if line not in public}


def _pieces(file: Path, overlap: int) -> Iterator[bytes]:
    """Yield a file's bytes; a secret that lies across two pieces is whole in the second."""
    before = b""
    with file.open("rb") as opened:
        while data := opened.read(PIECE):
            if data.count(0) < len(data):  # ZooKeeper's logs are mostly zeros
                yield before + data
            before = data[-overlap:]


def _hits(piece: bytes, words: dict[bytes, set[bytes]], lines: set[bytes]) -> Iterator[bytes]:
    yield from (word for word, written in words.items() if any(form in piece for form in written))
    for text in BASE64.findall(piece):
        yield from (line for line in lines if line in text)


def leaks(folder: Path, words: list[bytes]) -> tuple[int, int, list[str]]:
    """Return how many files were read, how many lines of keys looked for, and where one stands."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink()]
    lines = key_lines(files)
    written = {word: set(forms(word)) for word in words}
    overlap = max(map(len, [*lines, *chain.from_iterable(written.values())])) - 1
    found = []
    for file in files:
        belongs = file.suffix in WHERE_PASSWORDS_BELONG | WHERE_KEYS_BELONG
        if belongs or any(part in SITE for part in file.relative_to(folder).parts):
            continue
        known = {hit for piece in _pieces(file, overlap) for hit in _hits(piece, written, lines)}
        found += sorted(
            f"{file}: {'part of a private key' if hit in lines else repr(hit.decode())}"
            for hit in known
        )
    return len(files), len(lines), found


def main() -> int:
    """Look, and say what was found."""
    newest = Path(tempfile.gettempdir()) / f"pytest-of-{getpass.getuser()}" / "pytest-current"
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=newest)
    folder = parser.parse_args().folder.resolve()
    words = passwords()
    files, lines, found = leaks(folder, words) if folder.is_dir() else (0, 0, [])
    print(*found[:100], sep="\n", end="\n" if found else "")
    print(f"{folder}: {files} files, {len(words)} passwords, {lines} lines of keys", end="")
    print(f": {len(found)} leaks" if found else ": none stands where it does not belong")
    if not (files and words and lines):
        return 2
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
