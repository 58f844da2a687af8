"""Plans: what a run consists of, and the command line that says the same.

A plan and nothing else decides a run. A field with a help text is an option of
`python -m ottla.sim`.
"""

from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, NamedTuple, get_type_hints

from ottla.sim.masks import Mask, mask_of

ALWAYS = "always"
"""Stands for all faults that no plan has to name (`faults.Drawn`)."""
FLIPPED_BIT = "flipped-bit"
MASKS = ("only_faults", "skip_faults", "only_operations", "skip_operations")
"""The lists of a plan that leave single faults and operations out."""
_NAMES_HELP = "by their names after '#' in a failure's report, such as 3,c2 or a0.7; or 'none'"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run consists of. The seed decides all else."""

    seed: int
    brokers: Annotated[int, ""] = 3
    replicas: Annotated[int, ""] = 3
    min_isr: Annotated[int, ""] = 2
    seconds: Annotated[float, "virtual seconds of faults"] = 60.0
    partitions: Annotated[int, ""] = 4
    unclean_partitions: Annotated[int, "partitions with unclean elections (F43)"] = 0
    producers: Annotated[int, ""] = 2
    no_retry_producers: Annotated[int, "producers with acks=1 and no second try"] = 1
    consumers: Annotated[int, ""] = 2
    administrators: Annotated[
        int, "people who create, delete, grow, move, elect and configure topics at once"
    ] = 0
    members: Annotated[int, "processes in a consumer group; they die and are paused"] = 0
    copiers: Annotated[
        int,
        "transactional ids that copy what is written, exactly once; their processes die, "
        "are paused and taken over",
    ] = 0
    cooperative: Annotated[
        bool, "members keep partitions that do not move during a rebalance (KIP-429)"
    ] = False
    log_dirs: Annotated[
        int, "of each broker, up to three; administrators move replicas between them"
    ] = 2
    topic: str = "events"
    faults: tuple[str, ...] = (ALWAYS,)
    mean_gap_s: Annotated[float, "mean seconds between faults"] = 4.0
    pause_s: Annotated[float, "mean seconds between two writes of a producer to a partition"] = 0.2
    operators: Annotated[bool, "no topics come and go, or move where there are brokers enough"] = (
        True
    )
    slowness: Annotated[
        float, "of the brokers' machines, by the table of `costs`; 0: callbacks take no time"
    ] = 1.0
    interleave: Annotated[bool, "workers' calls are atomic"] = True
    """Whether the loop and other calls run between the file operations of a worker's call."""
    short_turns: Annotated[bool, "give way after each item, not after 8 ms of them"] = False
    crash_detection: Annotated[bool, "refused connections end a registration (R17)"] = False
    """If not, only its session's end does. The kept seeds are older than R17."""
    evicted: Annotated[float, "how often a broker finds that it has to read from disk"] = 0.0
    small_fetches: Annotated[
        bool, "followers fetch a few kilobytes at a time: catching up takes many responses"
    ] = False
    compacted: Annotated[
        bool, "the topic is compacted; each record has a key of its own, so all records stay"
    ] = False
    in_order: Annotated[
        bool, "a power loss keeps what was written in its order (F5 with an old disk)"
    ] = False
    hard: Annotated[
        bool,
        "break as much as is promised after a power loss: all but one replica in sync lose "
        "power at once, others are taken away while they have not caught up",
    ] = False
    careless: Annotated[bool, "break more than is promised after a power loss"] = False
    durable_zookeeper: Annotated[
        bool, "the coordination server has files, and dies as other processes do"
    ] = False
    only_faults: Annotated[tuple[str, ...] | None, f"run these only, {_NAMES_HELP}"] = None
    skip_faults: Annotated[tuple[str, ...], f"leave these out, {_NAMES_HELP}"] = ()
    only_operations: Annotated[tuple[str, ...] | None, f"run these only, {_NAMES_HELP}"] = None
    skip_operations: Annotated[tuple[str, ...], f"leave these out, {_NAMES_HELP}"] = ()
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def coordinated(self) -> bool:
        """Whether there is work for coordinators, and so internal topics."""
        return bool(self.members or self.copiers)

    @property
    def reads_disks(self) -> bool:
        """Whether brokers keep little in memory, and someone reads everything again and again."""
        return FLIPPED_BIT in self.faults

    @property
    def fault_mask(self) -> Mask:
        return mask_of(self.only_faults, self.skip_faults)

    @property
    def operation_mask(self) -> Mask:
        return mask_of(self.only_operations, self.skip_operations)

    def replayed_by(self) -> str:
        """Return the one command that runs this plan again."""
        parts = [f"python -m ottla.sim --seed {self.seed}"]
        values = asdict(self)
        for option in OPTIONS:
            value = values[option.field]
            if value != option.default:
                parts.append(option.flag)
                if isinstance(value, tuple):
                    parts.append(",".join(value) or "none")
                elif not isinstance(value, bool):
                    parts.append(f"{value:g}")
        if self.faults != (ALWAYS,):
            parts.append(f"--faults {','.join(self.faults) or 'none'}")
        return " ".join(parts)


class Option(NamedTuple):
    """An option of the command line, which sets a field of a plan."""

    flag: str
    field: str
    default: Any
    help: str


def _options() -> list[Option]:
    hints = get_type_hints(Plan, include_extras=True)
    short = {"mean_gap_s": "gap", "pause_s": "pause"}
    return [
        Option(
            f"--{'no-' if one.default is True else ''}"
            f"{short.get(one.name, one.name).replace('_', '-')}",
            one.name,
            one.default,
            hints[one.name].__metadata__[0],
        )
        for one in fields(Plan)
        if hasattr(hints[one.name], "__metadata__")
    ]


OPTIONS = _options()
