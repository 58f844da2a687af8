"""Draws docs/terminal-*.svg: real commands on a real cluster, and what they print, as pictures of a terminal.

    python docs/draw_terminal.py           # all of them, in two minutes
    python docs/draw_terminal.py help      # the help alone, which needs no cluster
    python docs/draw_terminal.py sim-check # this one needs no cluster either

The pictures need no font or anything else from another host. A unit test keeps the text of the help in its picture.
"""

import asyncio
import io
import re
import sys
import tempfile
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from try_pages import clean_up, environment_in, in_a_terminal

from ottla.admin.operations.status import metrics_of
from ottla.admin.session import world
from ottla.admin.top.looking import Looking, Metrics
from ottla.admin.top.screen import Top
from ottla.client.client import Client
from ottla.local.cluster_dir import ClusterDir

sys.path.insert(0, str(Path(__file__).parent))


DOCS = Path(__file__).parent
# Without the fonts of another host: every system has a font of one width.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code", "ui-monospace"
)
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
# picture -> (columns, title, commands); those after `#` are run and not shown
PICTURES: dict[str, tuple[int, str, tuple[str, ...]]] = {
    "help": (80, "ottla --help", ("ottla --help",)),
    "help-command": (80, "the help of a command", ("ottla reassign execute --help",)),
    "status": (
        92,
        "three brokers, one of them killed",
        (
            "ottla up",
            "ottla topics create flights --assignment 0:1:2,1:2:0,2:0:1",
            "seq 1 1000 | ottla produce flights",
            "ottla broker kill 0",
            "seq 1001 2000 | ottla produce flights",
            "ottla status",
            "ottla consume flights --from-beginning --timeout-ms 1500 --quiet | sort -n | uniq | wc -l",
        ),
    ),
    "top": (100, "ottla top", ()),
    "why": (112, "why does broker 1 lead?", ("ottla why flights-0",)),
    "topics": (
        92,
        "which replicas are missing?",
        ("ottla topics describe flights", "# ottla broker start 0", "# sleep 2", "ottla elect preferred --all"),
    ),
    "reassign": (
        92,
        "a fourth broker gets its share",
        (
            "ottla up -n 4 --quiet",
            "ottla reassign plan --topics flights > plan.json",
            "ottla reassign execute --file plan.json --rollback-file back.json --wait 60 > /dev/null",
            "ottla reassign verify --file plan.json",
        ),
    ),
    "whatif": (
        92,
        "what if two brokers die?",
        (
            "# ottla up -n 4 --quiet",
            "# ottla topics create flights --if-not-exists --assignment 0:1:2,1:2:3,2:3:0",
            "ottla whatif kill 1 2",
            "ottla whatif drain 3",
        ),
    ),
    "doctor": (
        92,
        "a broker was killed: what is wrong, and what mends it?",
        (
            "# ottla topics create orders --assignment 3 --config min.insync.replicas=1",
            "# ottla broker kill 3",
            "# sleep 10",
            "ottla doctor",
        ),
    ),
    "sim-check": (
        92,
        "is acks=1 safe for me?",
        ("ottla sim check --topic min.insync.replicas=2 --producer acks=1 --hours 0.3",),
    ),
}  # fmt: skip


def picture(name: str, folder: Path, environment: dict[str, str]) -> str:
    """Run the commands of a picture and return it."""
    columns, title, commands = PICTURES[name]
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    for command in commands:
        _, text = in_a_terminal(
            command.removeprefix("# "), folder, environment, columns, timeout_s=600
        )
        if command.startswith("# "):
            continue
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")), soft_wrap=True)
        if not text.strip():
            continue
        for line in text.rstrip("\n").split("\n"):
            shown = Text.from_ansi(line.rsplit("\r", 1)[-1].replace("\x1b[K", ""))
            for part in shown.divide(
                range(columns, len(shown), columns)
            ):  # as a terminal goes on below
                console.print(part, soft_wrap=True)
    return console.export_svg(
        title=title, theme=MONOKAI, code_format=FORMAT, unique_id=f"ottla-{name}"
    )


async def screen_of_top(folder: Path, environment: dict[str, str]) -> str:
    """Return the screen of `ottla top` while a broker dies."""
    cluster = ClusterDir(folder / "ottla-data")
    client = Client(world(), str(cluster.bootstrap()))

    async def explain(_: object) -> None:
        return None

    def metrics(broker: int) -> Metrics | None:
        return metrics_of(cluster.metrics_socket(broker))

    try:
        app = Top(Looking(client, metrics).look, 0.5, explain)
        async with app.run_test(size=(100, 26)) as pilot:
            await pilot.pause(2)
            await asyncio.to_thread(in_a_terminal, "ottla broker kill 2", folder, environment, 80)
            await pilot.pause(9)
            drawn = app.export_screenshot(title="ottla top: broker 2 was killed")
        return FONTS.sub("", drawn).replace("Fira Code", "ui-monospace")
    finally:
        await client.close()


def main() -> None:
    chosen = sys.argv[1:] or list(PICTURES)
    folder = Path(tempfile.mkdtemp(prefix="ottla-pictures-"))
    environment = environment_in(folder)
    try:
        for name in PICTURES:
            if name in chosen or (name.startswith("help") and "help" in chosen):
                if name == "top":
                    drawn = asyncio.run(screen_of_top(folder, environment))
                else:
                    drawn = picture(name, folder, environment)
                text = re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE) + "\n"
                (DOCS / f"terminal-{name}.svg").write_text(text, encoding="utf-8")
    finally:
        clean_up(folder)


if __name__ == "__main__":
    main()
