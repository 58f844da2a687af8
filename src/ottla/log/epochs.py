"""Leader epochs: which epoch wrote which offsets of a log. A decider, no I/O.

Kafka: `LeaderEpochFileCache` and its checkpoint (KIP-101, KIP-279). Invariants: epochs and start
offsets both strictly increase; the cache is cut together with the log (R11), so that an epoch's end
is the start of the next one known here.
"""

from bisect import bisect_left, bisect_right

from ottla.model.protocol import UNDEFINED


class EpochCache:
    """Leader epochs of this log, with the start offset of each."""

    __slots__ = ("_epochs", "_starts", "changed", "latest")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED
        """the newest epoch, or -1"""
        for epoch, start in entries or ():
            self.assign(epoch, start)
        self.changed = False
        """whether the file beside the log says something else"""

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Set the start offset of `epoch`; drop entries that contradict it.

        The newer entry wins: entries with an equal or higher epoch or start offset go, since no
        record of theirs can be in the log any more. Returns whether anything changed.
        """
        assert epoch >= 0, epoch
        assert start_offset >= 0, start_offset
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and start_offset >= starts[-1]:
            return False
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        self.latest = epoch
        self.changed = True
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest known epoch <= `epoch`, offset where it ends), or (-1, -1).

        An epoch older than all known ones ends where the first known one starts: what it wrote
        is gone from the log.
        """
        epochs = self._epochs
        if epoch == UNDEFINED or not epochs or epoch > epochs[-1]:
            return UNDEFINED, UNDEFINED
        if epoch == epochs[-1]:
            return epoch, log_end_offset
        higher = bisect_right(epochs, epoch)
        if higher == 0:
            return epoch, self._starts[0]
        return epochs[higher - 1], self._starts[higher]

    def epoch_of(self, offset: int) -> int:
        """Return the epoch that wrote `offset`, or -1."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else UNDEFINED

    def previous(self, epoch: int) -> int:
        """Return the newest epoch older than `epoch`, or -1."""
        index = bisect_left(self._epochs, epoch)
        return self._epochs[index - 1] if index else UNDEFINED

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that start at or beyond `end_offset`: the log ends there now."""
        index = bisect_left(self._starts, end_offset)
        if index < len(self._starts):
            del self._epochs[index:], self._starts[index:]
            self.latest = self._epochs[-1] if index else UNDEFINED
            self.changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Let the log begin at `start_offset`: the epoch that covers it now starts there."""
        index = bisect_right(self._starts, start_offset)
        if index == 0 or (index == 1 and self._starts[0] == start_offset):
            return
        del self._epochs[: index - 1], self._starts[: index - 1]
        self._starts[0] = start_offset
        self.changed = True

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.latest = UNDEFINED
            self.changed = True

    def replace(self, entries: list[tuple[int, int]]) -> None:
        """Take over the entries of another log."""
        self.clear()
        for epoch, start in entries:
            self.assign(epoch, start)
        self.changed = True
