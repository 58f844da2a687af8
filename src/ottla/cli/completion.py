"""What a shell may put at the cursor: click's completion, with the names that a cluster has.

Invariants: nothing is printed but candidates; where a cluster does not respond at once, none are.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from typing import Annotated

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    split_arg_string,
)

from ottla.cli.declaring import Argument, Parameter

COMPLETE = "_OTTLA_COMPLETE"
"""The variable by which a shell asks what may stand at the cursor."""
NAMES = "ottla.admin.connection"
"""The module whose `names(kind, chosen)` asks the cluster that is meant."""
CHOSEN = ("bootstrap_server", "directory", "profile", "command_config")
_WORDS = re.compile(r"([a-z]+|SCRAM-SHA-\d+)(\|([a-z]+|SCRAM-SHA-\d+))+")

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completer(p: Parameter) -> Completer | None:
    """Return what completes the values of a parameter; None where click knows."""
    if p.choices or p.is_flag:
        return None

    def complete(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
        if _WORDS.fullmatch(p.metavar):
            return [CompletionItem(w) for w in p.metavar.split("|") if w.startswith(begun)]
        if p.kinds:
            several = p.metavar.endswith(("…]", ",..."))
            before, comma, last = begun.rpartition(",") if several else ("", "", begun)
            names = import_module(NAMES).names
            found = [n for kind in p.kinds for n in names(kind, _chosen(ctx))]
            # What cannot be typed is left out: shells read lines, and terminals escape sequences.
            fitting = [n for n in found if n.startswith(last) and n.isprintable()]
            return [CompletionItem(before + comma + n) for n in fitting]
        is_path = p.type not in (str, int, float)
        if is_path or "FILE" in p.metavar or "SCENARIO" in p.metavar:
            return [CompletionItem(begun, type="file")]
        return []

    return complete


def _chosen(ctx: click.Context) -> Mapping[str, str]:
    """Return the options that say which cluster is meant, and the topic that was typed."""
    found = {name: ctx.params[name] for name in CHOSEN if ctx.params.get(name) is not None}
    known: Sequence[Parameter] = getattr(ctx.command, "known", ())
    for p in known:
        value = ctx.params.get(p.name)
        if "topic" in p.kinds and value:
            found.setdefault("topic", value if isinstance(value, str) else value[0])
    return found


class _Whole(ShellComplete):
    """Completes `--name=VALUE` as one word."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        found = super().get_completions(args, incomplete)
        name, equals, _ = incomplete.partition("=")
        if equals and name.startswith("--"):
            for item in found:
                item.value = item.value if item.type == "file" else f"{name}={item.value}"
        return found


class _Bash(_Whole, BashComplete):
    """As click's; but a name may have a colon, at which bash splits words, or a blank."""

    source_template = """\
%(complete_func)s() {
    local line current="${COMP_LINE:0:COMP_POINT}"
    current="${current##* }"
    COMPREPLY=()
    while IFS= read -r line; do
        case "$line" in
            file,*) compopt -o default 2>/dev/null; return ;;
        esac
        line="${line#*,}"
        # What stands before = or : is a word of its own to bash.
        [[ "$current" == *=* ]] && line="${line#*=}"
        [[ "$current" == *:* ]] && line="${line#"${current%%"${current##*:}"}"}"
        printf -v line %%q "$line"
        COMPREPLY+=("$line")
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        if line.endswith(" "):
            words.append("")
        return words[1:-1], words[-1]


class _Zsh(_Whole, ZshComplete):
    pass


class _Fish(_Whole, FishComplete):
    pass


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


class Shell(StrEnum):
    """The shells that are known."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(shell: Annotated[Shell, Argument(metavar="bash|zsh|fish")]) -> None:
    """Print what a shell is to source."""
    sys.stdout.write(script(shell))


def script(shell: str) -> str:
    """Return what a shell is to source."""
    kind = SHELLS[shell]
    return kind.source_template % kind(click.Command("ottla"), {}, "ottla", COMPLETE).source_vars()


def offer(root: click.Command, instruction: str) -> int:
    """Print what a shell asks for by `COMPLETE`, such as `bash_complete`; return the exit code."""
    kind = SHELLS.get(instruction.partition("_")[0])
    text = kind(root, {}, "ottla", COMPLETE).complete() if kind else ""
    sys.stdout.write(f"{text}\n" if text else "")
    return 0
