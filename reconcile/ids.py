"""Names: the values that say which collection, replica, peek, reign or step is meant."""

from typing import Literal, NamedTuple, NewType, Self, get_args

CollectionKind = Literal["s", "u", "t", "l"]
_KINDS: tuple[str, ...] = get_args(CollectionKind)

#: The only timestamp: a natural number, opened by the controller, dense.
Step = NewType("Step", int)
#: One controller's reign; a higher one fences all lower ones.
Epoch = NewType("Epoch", int)
#: One connection of one reign to one instance; a nonce, never used twice.
SessionId = NewType("SessionId", str)
#: A place in the durable command log.
Seqno = NewType("Seqno", int)
#: One replica of a cluster, for ever; ordered, so that "the smallest" is defined.
ReplicaId = NewType("ReplicaId", int)
#: One life of a replica's process; each restart is the next.
Incarnation = NewType("Incarnation", int)
#: One read; the controller never uses a number for two reads.
PeekId = NewType("PeekId", int)
#: The right to write a singleton source's shard; a higher one fences all lower ones at the shard.
WriterEpoch = NewType("WriterEpoch", int)


class GlobalId(NamedTuple):
    """Names one collection for ever: ``s3`` source or table, ``u7`` user, ``t9`` transient, ``l2`` logging.

    A named tuple rather than a dataclass because it is the key of every hot dictionary in the core: hashing and
    comparing stay in C, and a lookup takes a fifth of the time.
    """

    kind: CollectionKind
    number: int

    def __str__(self) -> str:
        return f"{self.kind}{self.number}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``u7``; raises ``ValueError`` with a reason for anything else."""
        kind, digits = text[:1], text[1:]
        if kind not in _KINDS or not kind:
            raise ValueError(f"{text!r} is not a collection: it must begin with one of {', '.join(_KINDS)}")
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError(f"{text!r} is not a collection: {kind!r} must be followed by a number")
        return cls(kind, int(digits))  # type: ignore[arg-type]  # one of _KINDS, checked above

    @property
    def is_source(self) -> bool:
        return self.kind == "s"

    @property
    def is_logging(self) -> bool:
        return self.kind == "l"

    @property
    def is_transient(self) -> bool:
        return self.kind == "t"
