"""The command `produce`: lines of standard input become records.

Who may call: `cli`.
"""

from typing import Annotated, Any

import typer

from ottla.admin.options import Bootstrap, Dir, ask
from ottla.admin.output import plural, say


def _acks(text: str) -> int:
    try:
        return {"all": -1, "-1": -1, "0": 0, "1": 1}[text]
    except KeyError:
        raise typer.BadParameter(f"--acks {text}: write 0, 1 or all") from None


def produce(
    topic: str,
    key_separator: Annotated[
        str | None, typer.Option(help="What stands between key and value; without it no keys")
    ] = None,
    acks: Annotated[str, typer.Option(help="0, 1 or all")] = "all",
    timeout_ms: Annotated[int, typer.Option(help="How long a record may take", min=1)] = 120_000,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
) -> None:
    """Produce lines of standard input, one record each."""
    from ottla.admin.operations import produce as producing  # noqa: PLC0415 - lazy
    from ottla.admin.operations import topics  # noqa: PLC0415 - lazy
    from ottla.admin.session import world  # noqa: PLC0415 - lazy

    if key_separator == "":
        raise typer.BadParameter("--key-separator is empty; write one, as --key-separator=:")
    separator = key_separator.encode() if key_separator is not None else None
    wanted_acks = _acks(acks)

    async def run(client: Any) -> int:
        here = world()
        writer = producing.Writer(
            client, here, topic, acks=wanted_acks, timeout_s=timeout_ms / 1000
        )
        facts = await topics.describe_topic(client, topic)
        await writer.open(len(facts.partitions))
        try:
            await producing.produce_lines(here, writer, producing.Lines(separator))
        finally:
            say(f"{plural(writer.written, 'record')} produced to {topic}")
        return writer.written

    ask(directory, bootstrap_server, run)
