"""Plans: what a run consists of, and the command line that says the same.

Who may call: everyone in this room, tests. A plan and nothing else decides a run; `drawn` makes one
of a seed, so that sizes and settings vary as well as faults.
"""

import random
from dataclasses import dataclass, field

from ottla.sim.nemesis import NAMES

SIZES = (
    "brokers",
    "replicas",
    "min_isr",
    "seconds",
    "partitions",
    "frail",
    "producers",
    "hasty_producers",
    "consumers",
    "administrators",
    "members",
    "copiers",
)
"""The numbers of a plan that a command line may set."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run consists of. The seed decides all else."""

    seed: int
    brokers: int = 3
    replicas: int = 3
    min_isr: int = 2
    seconds: float = 60.0
    partitions: int = 4
    frail: int = 0
    """Partitions of a topic that allows unclean elections (F43)."""
    producers: int = 2
    hasty_producers: int = 1
    consumers: int = 2
    administrators: int = 0
    """How many people create, delete, grow, move, elect and configure topics at once."""
    members: int = 0
    """How many processes read as members of one consumer group; they die and are paused."""
    copiers: int = 0
    """How many transactional ids copy what there is, exactly once; their processes die, are paused
    and taken over."""
    topic: str = "events"
    faults: tuple[str, ...] = NAMES
    mean_gap_s: float = 4.0
    operators: bool = True
    """Whether topics come and go, and where there are brokers enough also move."""
    careless: bool = False
    """Whether the nemesis goes beyond what is promised after a power loss."""
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def coordinated(self) -> bool:
        """Whether there is work for coordinators, and so internal topics."""
        return bool(self.members or self.copiers)

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
        if not self.operators:
            parts.append("--no-operators")
        if self.careless:
            parts.append("--careless")
        if self.faults != default.faults:
            parts.append(f"--faults {','.join(self.faults) or 'none'}")
        return " ".join(parts)


def drawn(seed: int, *, coordinated: bool = False) -> Plan:
    """Return a plan whose sizes and settings are drawn by the seed, too.

    `coordinated` adds members of groups and transactional copiers, and leaves all else as it is.
    """
    rng = random.Random(f"{seed}/plan")  # noqa: S311 - repeatable on purpose
    extra = random.Random(f"{seed}/coordinated")  # noqa: S311
    members, copiers = extra.choice(((0, 1), (0, 2), (2, 1), (2, 2), (3, 0), (3, 2), (3, 3)))
    brokers = rng.choice((3, 3, 4, 4, 5, 6, 7))
    replicas = min(brokers, rng.choice((2, 3, 3, 3, 4)))
    return Plan(
        seed,
        brokers=brokers,
        replicas=replicas,
        min_isr=min(replicas, rng.choice((1, 2, 2, 2, 3))),
        seconds=rng.choice((10.0, 20.0, 20.0, 40.0)),
        partitions=rng.choice((1, 2, 4)),
        frail=rng.choice((0, 1, 2)),
        producers=rng.choice((1, 1, 2)),
        hasty_producers=rng.choice((0, 1)),
        consumers=1,
        administrators=rng.choice((0, 2, 3, 4)),
        mean_gap_s=rng.choice((1.0, 1.5, 2.5, 4.0)),
        operators=rng.random() < 0.7,
        members=members if coordinated else 0,
        copiers=copiers if coordinated else 0,
    )
