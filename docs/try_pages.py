"""Runs the commands of START.md, OPERATIONS.md and the README's tour on a real cluster and compares what they print.

    python docs/try_pages.py               # all of them, each in a fresh folder
    python docs/try_pages.py --write       # also writes into the page what came out differently

Commands stand in blocks of the kind `console`, after `$ `, and go on after `> `; what they print follows them. Each
runs in a terminal of 100 columns, in one folder per page. A command ends with code 0, or with the code that its comment
names: `# exit code 1`. Numbers, times and ids differ from run to run and are not compared, but for lines that are a number
alone or speak of records: those are what a page promises. A line `…` in the page stands for any number of lines. Where
more may differ, `<!-- expect: PATTERN -->` before a block names what each of its commands must print, however wrapped.
In the README's tour each line is a command; a number after `#` is the last that it must print.
"""

import argparse
import difflib
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass, field
from pathlib import Path

DOCS = Path(__file__).parent
PAGES = ("START.md", "OPERATIONS.md", "README.md")
COLUMNS, LINES = 100, 60
TIMEOUT_S = 120
BLOCK = re.compile(
    r"^(?:<!-- expect: ([^\n]*) -->\n\n?)?```console\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
EXIT_CODE = re.compile(r"#.*\bexit code (\d+)")
TOUR = re.compile(r"^## A short tour\n+```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Commands that only ask: what they tell may come a moment later on a busy machine, so they are asked again.
ASKS = re.compile(
    r"^(sleep \d+; )?(grep|ottla (status|why|consume \S+ --count|topics (describe|list)))\b[^|;>]*$"
)
AGAIN_S = 30
PROMISED = re.compile(r"^\s*[\d,]+\s*$|\brecords\b")


@dataclass
class Command:
    text: str
    printed: list[str] = field(default_factory=list)

    @property
    def shell(self) -> str:
        """The text without the `$ ` and `> ` of a terminal."""
        return "\n".join(line[2:] for line in self.text.split("\n"))

    @property
    def exit_code(self) -> int:
        found = EXIT_CODE.search(self.text)
        return int(found[1]) if found else 0


def commands(block: str) -> list[Command]:
    found: list[Command] = []
    for line in block.rstrip("\n").split("\n"):
        if line.startswith("$ "):
            found.append(Command(line))
        elif line.startswith("> ") and not found[-1].printed:
            found[-1].text += "\n" + line
        else:
            found[-1].printed.append(line)
    return found


def masked(line: str) -> str:
    """Return a line without what differs from run to run."""
    line = re.sub(r"\bid [\w-]{22}", "id ID", line)
    line = re.sub(r" \([\d,]+/s, [\d.]+ MB/s\)", "", line)
    if not PROMISED.search(line):
        line = re.sub(r"\d+(?:[,.]\d+)*", "0", line)
    line = re.sub(r"controller", "", line) if re.match(r"\s*\d+\s+\S+:\d+", line) else line
    return " ".join(re.sub("[─━]+", "─", line).split())


def fits(expected: list[str], came: list[str], pattern: str | None) -> bool:
    """Say whether the lines are those of the page, or have what the pattern says."""
    if pattern:
        return bool(expected) and re.search(pattern, " ".join(" ".join(came).split())) is not None
    text = "\n".join(map(masked, came)) + "\n"
    parts = [
        r"(?:.*\n)*?" if line.strip() == "…" else re.escape(masked(line)) + "\n"
        for line in expected
    ]
    return re.fullmatch("".join(parts), text if came else "") is not None


def in_a_terminal(
    shell: str,
    folder: Path,
    environment: dict[str, str],
    columns: int = COLUMNS,
    timeout_s: float = TIMEOUT_S,
) -> tuple[int, str]:
    """Run a command in a terminal; return its exit code and all that the terminal got."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
    process = subprocess.Popen(
        ["bash", "-c", shell], cwd=folder, env=environment,
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    shown = bytearray()
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            # What was started in the background keeps the terminal open; the command's end is what counts.
            if select.select([master], [], [], 0.1)[0]:
                try:
                    data = os.read(master, 65536)
                except OSError:
                    break
                if not data:
                    break
                shown += data
            elif process.poll() is not None:
                break
        else:
            os.killpg(process.pid, signal.SIGKILL)
            shown += f"\n(not done after {timeout_s} s)".encode()
        code = process.wait(10)
    finally:
        os.close(master)
    return code, shown.decode(errors="replace").replace("\r\n", "\n")


def run(shell: str, folder: Path, environment: dict[str, str]) -> tuple[int, list[str]]:
    """Run a command in a terminal; return its exit code and the lines that are left to see."""
    code, text = in_a_terminal(shell, folder, environment)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    lines = [line.rsplit("\r", 1)[-1].rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return code, lines


def environment_in(folder: Path) -> dict[str, str]:
    """Return the environment of a page's commands: this Python's `ottla`, nobody's settings."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    ours = {"OTTLA_DIR", "OTTLA_BOOTSTRAP_SERVERS", "OTTLA_PROFILE", "COLUMNS", "NO_COLOR"}
    return {k: v for k, v in os.environ.items() if k not in ours} | {
        "PATH": path, "TERM": "xterm", "LC_ALL": "C.UTF-8",
        "OTTLA_CONFIG": str(folder / "config.toml"),
    }  # fmt: skip


def try_page(page: Path, folder: Path, *, write: bool = False) -> list[str]:
    """Run a page's commands one after the other; return what was not as it says."""
    environment = environment_in(folder) | {"NO_COLOR": "1"}
    problems = []
    text = page.read_text(encoding="utf-8")
    rewritten = text
    for block in BLOCK.finditer(text):
        found = commands(block[2])
        for command in found:
            code, lines = run(command.shell, folder, environment)
            deadline = time.monotonic() + AGAIN_S
            while (
                command.printed
                and ASKS.match(command.shell)
                and not (code == command.exit_code and fits(command.printed, lines, block[1]))
                and time.monotonic() < deadline
            ):
                time.sleep(1)
                code, lines = run(command.shell, folder, environment)
            if code != command.exit_code:
                shown = "\n".join(lines[-20:])
                problems.append(
                    f"{page.name}: {command.text}\nexit code {code}, not {command.exit_code}:\n{shown}"
                )
            if not fits(command.printed, lines, block[1]):
                difference = difflib.unified_diff(
                    command.printed, lines, "page", "now", lineterm="", n=1
                )
                problems.append(f"{page.name}: {command.text}\n" + "\n".join(difference))
                command.printed = lines
        new = "".join("\n".join([c.text, *c.printed]) + "\n" for c in found)
        head = block[0].partition("```console\n")[0]
        rewritten = rewritten.replace(block[0], f"{head}```console\n{new}```", 1)
    if write and rewritten != text:
        page.write_text(rewritten, encoding="utf-8")
    return problems


def tour(readme: str) -> list[Command]:
    """Return the commands of the README's tour, but for the one that sets the shell up."""
    found = TOUR.search(readme)
    assert found, "README.md has no tour"
    result = []
    for line in found[1].rstrip("\n").split("\n"):
        number = re.search(r"#\s+(\d+)$", line)
        if not line.startswith("source "):
            result.append(Command(f"$ {line}", [number[1]] if number else []))
    return result


def try_tour(folder: Path) -> list[str]:
    """Run the README's tour; return what was not as it says."""
    environment = environment_in(folder) | {"NO_COLOR": "1"}
    problems = []
    for command in tour((DOCS.parent / "README.md").read_text(encoding="utf-8")):
        code, lines = run(command.shell, folder, environment)
        said = not command.printed or [line.strip() for line in lines[-1:]] == command.printed
        if code != command.exit_code or not said:
            shown = "\n".join(lines[-20:])
            problems.append(f"README.md: {command.text}\nexit code {code}:\n{shown}")
    return problems


def clean_up(folder: Path) -> None:
    """Stop what a page that failed half-way left running, and remove the folder."""
    for cluster in folder.glob("**/cluster.json"):
        subprocess.run(
            [sys.executable, "-m", "ottla", "down", "--dir", str(cluster.parent)],
            check=False, capture_output=True, timeout=60,
        )  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("pages", nargs="*", default=PAGES)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    problems = []
    for name in chosen.pages:
        folder = Path(tempfile.mkdtemp(prefix="ottla-page-"))
        try:
            if name == "README.md":
                problems += try_tour(folder)
            else:
                problems += try_page(DOCS / name, folder, write=chosen.write)
        finally:
            clean_up(folder)
    print("\n\n".join(problems) or "as the pages say")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
