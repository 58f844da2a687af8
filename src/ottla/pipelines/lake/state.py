"""What a table says of a topic's offsets: read from its commits, written with each of them.

Invariants: an account is changed by a commit of the table alone, in which the rows are: there is no
second truth. Every offset of [start, next) of a partition is a row, a dead letter, a gap or lost.
"""

from collections.abc import Callable, Mapping

import msgspec

BATCH = "batch"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One partition: where landing began, where it goes on, and what [start, next) was.

    `epoch`: the leader epoch in which `next` was confirmed, -1 if it is unknown. `gaps` hold no
    record that readers see: transaction markers, aborted records, what compaction removed. `lost`
    was removed by the cluster before it landed (on_loss = "skip"). All else are rows.
    """

    start: int
    next: int
    epoch: int = -1
    dead: int = 0
    gaps: int = 0
    lost: int = 0

    @property
    def rows(self) -> int:
        return self.next - self.start - self.dead - self.gaps - self.lost


FIELDS = Account.__struct_fields__


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All partitions, and how many commits of the job there were."""

    batch: int = 0
    accounts: dict[int, Account] = {}

    def flat(self) -> dict[str, int]:
        """Return the state as names and numbers, which is how tables keep it."""
        found = {BATCH: self.batch}
        for partition, account in self.accounts.items():
            for name, value in msgspec.structs.asdict(account).items():
                found[f"{partition}:{name}"] = value
        return found

    def after(self, accounts: Mapping[int, Account]) -> "State":
        """Return the state after one more commit, with these accounts of partitions changed."""
        return State(batch=self.batch + 1, accounts={**self.accounts, **accounts})

    def total(self, of: Callable[[Account], int]) -> int:
        return sum(map(of, self.accounts.values()))


def state_of(flat: Mapping[str, int]) -> State:
    """Return the state that is kept as names and numbers."""
    found: dict[int, dict[str, int]] = {}
    for key, value in flat.items():
        partition, colon, name = key.partition(":")
        if colon and name in FIELDS:
            found.setdefault(int(partition), {})[name] = value
    return State(
        batch=flat.get(BATCH, 0), accounts={p: Account(**known) for p, known in found.items()}
    )
