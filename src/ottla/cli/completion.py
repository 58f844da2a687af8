"""What a shell may put where the cursor is: commands, options, values, names of the cluster.

Pure: callers pass names of topics and the like. Invariant: never raises; where nothing
is known, nothing is offered.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ottla.cli.declaring import Parameter, UsageError, asks_cluster, parameters
from ottla.cli.parsing import EVERYWHERE
from ottla.cli.tree import Group, find

FILES = ":files"
"""Instead of a value: the shell is to complete the name of a file."""

Names = Callable[[str, Mapping[str, str]], Sequence[str]]
"""Returns the names of a kind, given the options that say which cluster is meant."""

_WORDS = re.compile(r"([a-z]+|SCRAM-SHA-\d+)(\|([a-z]+|SCRAM-SHA-\d+))+")

CLUSTER_OPTIONS = {
    "-b": "bootstrap_server", "--bootstrap-server": "bootstrap_server", "--dir": "directory",
    "--profile": "profile", "--command-config": "command_config",
}  # fmt: skip


class Candidate(NamedTuple):
    """A word that may stand there, and what it means."""

    word: str
    meaning: str = ""


def candidates(
    root: Group, words: Sequence[str], names: Names, connection: Callable[..., None]
) -> list[Candidate]:
    """Return what may stand for the last word, which may be empty or begun.

    `connection` is the function whose parameters every command has that asks a cluster.
    """
    *before, last = list(words) or [""]
    try:
        _, node, rest = find(root, before)
    except UsageError:
        return []
    if isinstance(node, Group):
        if rest:
            return []
        found = [Candidate(name, child.summary) for name, child in node.children.items()]
        return [c for c in found if c.word.startswith(last)]
    if not node.target:
        return []
    known = node.parameters()
    if asks_cluster(known):
        known += parameters(connection)
    options = {name: p for p in known if p.is_option for name in p.names}
    chosen = _cluster(rest)
    places = _places(rest, options)
    topic = _topic(rest, places)
    if topic is not None:
        chosen["topic"] = topic
    if last.startswith("--") and "=" in last:
        name, _, value = last.partition("=")
        if name not in options:
            return []
        return [
            c if c.word == FILES else Candidate(f"{name}={c.word}", c.meaning)
            for c in _values(options[name], value, names, chosen)
        ]
    waiting = options.get(rest[-1]) if rest and rest[-1].startswith("-") else None
    if waiting is not None and not waiting.is_flag:
        return _values(waiting, last, names, chosen)
    if last.startswith("-"):
        listed = [(n, p.declared.help) for n, p in options.items()]
        listed += [(n, o.help) for o in EVERYWHERE.values() for n in o.names]
        return [Candidate(n, text) for n, text in listed if n.startswith(last) and n[1] == "-"]
    arguments = [p for p in known if not p.is_option]
    count = len(places)
    here = arguments[min(count, len(arguments) - 1)] if arguments else None
    if here is None or (count >= len(arguments) and not here.many):
        return []
    return _values(here, last, names, chosen)


def _places(words: Sequence[str], options: Mapping[str, Parameter]) -> list[str]:
    """Return the arguments before the cursor."""
    found, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in options:
            skip = not options[word].is_flag
        elif not word.startswith("-"):
            found.append(word)
    return found


def _topic(words: Sequence[str], places: Sequence[str]) -> str | None:
    """Return the topic whose partitions are meant: of --topic, or the first argument."""
    for name, value in pairwise(words):
        if name in ("--topic", "-t"):
            return value
    return places[0] if places else None


def _cluster(words: Sequence[str]) -> dict[str, str]:
    """Return the options that say which cluster is meant."""
    found = {}
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in CLUSTER_OPTIONS:
            if equals:
                found[CLUSTER_OPTIONS[name]] = value
            elif i + 1 < len(words):
                found[CLUSTER_OPTIONS[name]] = words[i + 1]
    return found


def _values(p: Parameter, begun: str, names: Names, chosen: Mapping[str, str]) -> list[Candidate]:
    choices = p.choices or (p.metavar.split("|") if _WORDS.fullmatch(p.metavar) else [])
    if choices:
        return [Candidate(c) for c in choices if c.startswith(begun)]
    of = p.kinds
    if of:
        several = p.metavar.endswith(("…]", ",..."))
        before, comma, last = begun.rpartition(",") if several else ("", "", begun)
        found = [n for kind in of for n in names(kind, chosen)]
        return [Candidate(before + comma + n) for n in found if n.startswith(last)]
    is_path = p.type not in (str, int, float, bool)
    return [Candidate(FILES)] if is_path or "FILE" in p.metavar or "SCENARIO" in p.metavar else []


SCRIPTS = {
    "bash": """\
# Completion of ottla for bash. Put it into ~/.bashrc: source <(ottla completion bash)
_ottla() {
    local line words current
    read -ra words <<< "${COMP_LINE:0:COMP_POINT}"
    [[ "${COMP_LINE:COMP_POINT-1:1}" == " " ]] && words+=("")
    current="${words[-1]}"
    COMPREPLY=()
    while IFS= read -r line; do
        line="${line%%$'\\t'*}"
        if [[ "$line" == ":files" ]]; then
            compopt -o default 2>/dev/null
            return
        fi
        # Bash takes what stands behind = or : for a word of its own.
        [[ "$current" == *=* ]] && line="${line#*=}"
        [[ "$current" == *:* ]] && line="${line#"${current%"${current##*:}"}"}"
        printf -v line %q "$line"
        COMPREPLY+=("$line")
    done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -F _ottla ottla
""",
    "zsh": """\
#compdef ottla
# Completion of ottla for zsh. Put it into ~/.zshrc: source <(ottla completion zsh)
_ottla() {
    local -a found
    local line
    for line in "${(@f)$(${words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -z "$line" ]] && continue
        if [[ "$line" == ":files" ]]; then
            _files
            return
        fi
        if [[ "$line" == *$'\\t'* ]]; then
            found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
        else
            found+=("${line//:/\\\\:}")
        fi
    done
    _describe ottla found
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _ottla ottla
""",
    "fish": """\
# Completion of ottla for fish: ottla completion fish > ~/.config/fish/completions/ottla.fish
function __ottla_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] __complete $words[2..-1] 2>/dev/null)
    if test "$found[1]" = ":files"
        __fish_complete_path (commandline -ct)
    else
        printf '%s\\n' $found
    end
end
complete -c ottla -f -a '(__ottla_complete)'
""",
}
"""What each shell runs; the shells ask `ottla __complete WORD...` at every press of the key."""
