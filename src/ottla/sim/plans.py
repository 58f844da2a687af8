"""Plans: what a run consists of, and the command line that says the same.

A plan and nothing else decides a run; `drawn` makes one of a seed, so that sizes and settings vary
as well as faults.
"""

import random
from dataclasses import dataclass, field

from ottla.sim.faults import ASKED_FOR, DRAWN_STATEMENTS, NAMES, OF_CRASHES
from ottla.sim.masks import Mask, mask_of

FLIPPED_BIT = "flipped-bit"
SIZES = (
    "brokers",
    "replicas",
    "min_isr",
    "seconds",
    "partitions",
    "unclean_partitions",
    "producers",
    "no_retry_producers",
    "consumers",
    "administrators",
    "members",
    "copiers",
    "log_dirs",
)
"""The numbers of a plan that a command line may set."""


MASKS = ("only_faults", "skip_faults", "only_operations", "skip_operations")
"""The lists of a plan that leave single faults and operations out."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run consists of. The seed decides all else."""

    seed: int
    brokers: int = 3
    replicas: int = 3
    min_isr: int = 2
    seconds: float = 60.0
    partitions: int = 4
    unclean_partitions: int = 0
    """Partitions of a topic that allows unclean elections (F43)."""
    producers: int = 2
    no_retry_producers: int = 1
    consumers: int = 2
    administrators: int = 0
    """How many people create, delete, grow, move, elect and configure topics at once."""
    members: int = 0
    """How many processes read as members of one consumer group; they die and are paused."""
    copiers: int = 0
    """How many transactional ids copy what there is, exactly once; their processes die, are paused
    and taken over."""
    cooperative: bool = False
    """Whether members keep what does not move while the group is assigned anew (KIP-429)."""
    log_dirs: int = 2
    """How many each broker has, up to three; administrators move replicas between them."""
    topic: str = "events"
    faults: tuple[str, ...] = NAMES
    mean_gap_s: float = 4.0
    pause_s: float = 0.2
    """The mean time between two writes of a producer to a partition."""
    operators: bool = True
    """Whether topics come and go, and where there are brokers enough also move."""
    slowness: float = 1.0
    """How slow the brokers' machines are, by the table of `costs`; 0: callbacks take no time."""
    interleave: bool = True
    """Whether the loop and other calls run between the file operations of a worker's call."""
    short_turns: bool = False
    """Whether what shares the loop gives way after each item, and not only after 8 ms of them."""
    crash_detection: bool = False
    """Whether refused connections prove that a process is gone (R17); if not, only its session's
    end does. The kept seeds are older."""
    evicted: float = 0.0
    """How often a broker that looks for something in memory finds that it has to be read."""
    small_fetches: bool = False
    """Whether followers fetch a few kilobytes at a time, so that catching up takes many
    responses."""
    compacted: bool = False
    """Whether the topic is compacted; each record has a key of its own, so all records stay."""
    in_order: bool = False
    """Whether a power loss keeps what was written in its order (F5 with an old disk)."""
    hard: bool = False
    """Whether the nemesis goes to the limit of what is promised after a power loss: all but one
    replica in sync lose power at once, and others are taken away while they have not caught up."""
    careless: bool = False
    """Whether the nemesis goes beyond what is promised after a power loss."""
    durable_zookeeper: bool = False
    """Whether the coordination server has files, and dies as other processes do."""
    only_faults: tuple[str, ...] | None = None
    """The faults that may happen, by their names ("7", "c2"); None for all (`masks`)."""
    skip_faults: tuple[str, ...] = ()
    only_operations: tuple[str, ...] | None = None
    """The operations of administrators and movers that may happen ("a0.7", "m0.2")."""
    skip_operations: tuple[str, ...] = ()
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
        default = Plan(0)
        for name in SIZES:
            value = getattr(self, name)
            if value != getattr(default, name):
                parts.append(f"--{name.replace('_', '-')} {value:g}")
        if self.mean_gap_s != default.mean_gap_s:
            parts.append(f"--gap {self.mean_gap_s:g}")
        if self.pause_s != default.pause_s:
            parts.append(f"--pause {self.pause_s:g}")
        if not self.operators:
            parts.append("--no-operators")
        if self.cooperative:
            parts.append("--cooperative")
        if self.slowness != default.slowness:
            parts.append(f"--slowness {self.slowness:g}")
        if not self.interleave:
            parts.append("--no-interleave")
        if self.short_turns:
            parts.append("--short-turns")
        if self.crash_detection:
            parts.append("--crash-detection")
        if self.evicted:
            parts.append(f"--evicted {self.evicted:g}")
        if self.small_fetches:
            parts.append("--small-fetches")
        if self.compacted:
            parts.append("--compacted")
        if self.in_order:
            parts.append("--in-order")
        if self.hard:
            parts.append("--hard")
        if self.durable_zookeeper:
            parts.append("--durable-zookeeper")
        if self.careless:
            parts.append("--careless")
        if self.faults != default.faults:
            parts.append(f"--faults {','.join(self.faults) or 'none'}")
        for name in MASKS:
            chosen = getattr(self, name)
            if chosen != getattr(default, name):
                parts.append(f"--{name.replace('_', '-')} {','.join(chosen) or 'none'}")
        return " ".join(parts)


def drawn(seed: int, *, coordinated: bool = False) -> Plan:
    """Return a plan whose sizes and settings are drawn by the seed, too.

    `coordinated` adds members of groups and transactional copiers, and leaves all else as it is.
    """
    rng = random.Random(f"{seed}/plan")  # noqa: S311 - repeatable on purpose
    extra = random.Random(f"{seed}/coordinated")  # noqa: S311
    members, copiers = extra.choice(((0, 1), (0, 2), (2, 1), (2, 2), (3, 0), (3, 2), (3, 3)))
    cooperative = random.Random(f"{seed}/cooperative").random() < 0.5  # noqa: S311
    log_dirs = random.Random(f"{seed}/log dirs").choice((1, 2, 2, 2, 3))  # noqa: S311
    more = random.Random(f"{seed}/aimed")  # noqa: S311
    asked_for = ASKED_FOR if more.random() < 0.5 else ()
    if more.random() < 0.7:  # an auditor and little memory cost time
        asked_for = tuple(name for name in asked_for if name != FLIPPED_BIT)
    crash_detection = random.Random(f"{seed}/crash detection").random() < 0.7  # noqa: S311
    if crash_detection:
        asked_for = (*asked_for, *OF_CRASHES)
    # A stream of its own: without these faults a seed draws what it drew before there were any.
    trust = random.Random(f"{seed}/statements")  # noqa: S311
    durable_zookeeper = trust.random() < 0.7
    if trust.random() < 0.6:
        asked_for = (*asked_for, *(n for n in DRAWN_STATEMENTS if trust.random() < 0.5))
    brokers = rng.choice((3, 3, 4, 4, 5, 6, 7))
    replicas = min(brokers, rng.choice((2, 3, 3, 3, 4)))
    return Plan(
        seed,
        brokers=brokers,
        replicas=replicas,
        min_isr=min(replicas, rng.choice((1, 2, 2, 2, 3))),
        seconds=rng.choice((10.0, 20.0, 20.0, 40.0)),
        partitions=rng.choice((1, 2, 4)),
        unclean_partitions=rng.choice((0, 1, 2)),
        producers=rng.choice((1, 1, 2)),
        no_retry_producers=rng.choice((0, 1)),
        consumers=1,
        administrators=max(rng.choice((0, 2, 3, 4)), int(log_dirs > 1)),
        log_dirs=log_dirs,
        mean_gap_s=rng.choice((1.0, 1.5, 2.5, 4.0)),
        pause_s=extra.choice((0.3, 0.6, 1.0)),
        slowness=extra.choice((0.0, 1.0, 1.0, 4.0)),
        short_turns=random.Random(f"{seed}/turns").random() < 0.3,  # noqa: S311
        crash_detection=crash_detection,
        durable_zookeeper=durable_zookeeper,
        evicted=extra.choice((0.0, 0.01, 0.2)),
        compacted=random.Random(f"{seed}/compacted").random() < 0.25,  # noqa: S311
        in_order=extra.random() < 0.2,
        hard=extra.random() < 0.5,
        small_fetches=extra.random() < 0.3,
        faults=(*NAMES, *asked_for),
        operators=rng.random() < 0.7,
        members=members if coordinated else 0,
        copiers=copiers if coordinated else 0,
        cooperative=coordinated and members > 0 and cooperative,
    )
