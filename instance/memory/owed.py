"""What a shard lacks of what was computed: the desired contents less those that it holds.

Changes that were computed are added, changes that the shard is told to hold are taken away. Where all replicas compute
the same, what one of them wrote cancels what the others computed, and nothing is owed but what is newer. Where one ever
differed, the difference stays owed, and the next write corrects it.
"""

from instance.memory.batch import Batch, concat
from instance.memory.rows import RowFormat
from reconcile.frontiers import MINIMUM, Antichain


class Owed:
    """Desired less held. Nothing may be written before ``computed`` is beyond ``held``."""

    def __init__(self, format: RowFormat) -> None:
        self._format = format
        self._owed = Batch.nothing(format)
        #: Everything desired before it is known.
        self.computed = MINIMUM
        #: Everything that the shard holds before it is accounted for; where it stands.
        self.held = MINIMUM

    def __len__(self) -> int:
        """How many updates are owed, before those that cancel are left out."""
        return len(self._owed)

    def compute(self, change: Batch, upper: Antichain) -> None:
        """These changes are desired, and with them all before ``upper`` are."""
        self._owed = concat(self._format, [self._owed, change])
        self.computed = upper

    def hold(self, changes: Batch, upper: Antichain) -> None:
        """The shard holds these changes too, and stands at ``upper``."""
        self._owed = concat(self._format, [self._owed, changes.negated()])
        self.held = upper
        self._fold()

    def trust(self, upper: Antichain) -> None:
        """The shard stands at ``upper``, and what it holds cannot be known: it is taken for what is desired."""
        _, self._owed = self._owed.split(upper)
        self.held = upper

    def due(self) -> Batch:
        """What to write from ``held`` to ``computed``; what is owed from before is made good at the first step."""
        self._fold()
        found, _ = self._owed.split(self.computed)
        return found.consolidated()

    def wrote(self, upper: Antichain) -> None:
        """What was due when ``upper`` was computed is in the shard."""
        _, self._owed = self._owed.split(upper)
        self.held = upper

    def forget_steps(self, since: Antichain) -> None:
        """Nobody will read the steps before ``since`` one by one."""
        last = min(since, self.computed)
        if last.step is not None and last.step > 0:
            # Never up to what is computed itself: what is written must lie before it.
            self._owed = self._owed.advanced(last.step - 1)

    def _fold(self) -> None:
        """What is owed for steps that the shard has behind it can only be made good at the next."""
        if self.held.step is not None:
            self._owed = self._owed.advanced(self.held.step)
