"""The kept inputs: one text file per target, one input per line in hex, what it is before it.

    crash: a topic's name of 40,000 bytes  000001...
    seed: Fetch v12                        000100...

`seed` lines give a run its start, `crash` lines broke something once, `found` lines reached code
nothing else reached. A run's own corpus, larger, lies in ~/.cache/ottla/fuzz.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"


def kept(target):
    """Return (what it is, bytes) of each kept input of a target."""
    path = FOLDER / f"{target}.txt"
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    found = []
    for line in lines:
        if line and not line.startswith("#"):
            what, _, raw = line.rpartition(" ")
            found.append((what.strip(), bytes.fromhex("" if raw == "-" else raw)))
    return found


def write(target, inputs):
    """Write a target's kept inputs, (what, bytes) each, without doubles."""
    seen = {}
    for what, raw in inputs:
        seen.setdefault(raw, what)
    FOLDER.mkdir(exist_ok=True)
    text = "".join(f"{what} {raw.hex() or '-'}\n" for raw, what in seen.items())
    (FOLDER / f"{target}.txt").write_text(text, encoding="utf-8")
