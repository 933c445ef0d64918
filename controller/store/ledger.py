"""The ledger: what a change may not contradict, kept in memory so that a bad statement never reaches the database.

Statements share a database transaction, so one that violates a constraint would take innocent ones down with it.
Therefore each is admitted here first, whole or not at all; the constraints of the tables restate the same rules as a
paired assertion. The ledger runs ahead of the disk by what waits; if the disk fails the store is dead anyway.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, assert_never, cast

from controller.store.bounds import FIELD_BYTES_MAX, NUMBER_MAX, REPLIES_MAX
from controller.store.changes import (
    Change,
    Channel,
    ClusterDropped,
    ClusterPut,
    FunctionDropped,
    FunctionPut,
    IdsAllotted,
    LogAppended,
    ObjectDropped,
    ObjectPut,
    ReplicaDropped,
    ReplicaIdsAllotted,
    ReplicaPut,
    ReplyRemembered,
    StepOpened,
    WriterEpochAllotted,
)
from controller.store.interface import Loaded
from reconcile.errors import InvalidRequest, InvariantBroken
from reconcile.ids import GlobalId, ReplicaId, Seqno, Step, WriterEpoch
from reconcile.limits import NAME_CHARACTERS_MAX

K = TypeVar("K")
V = TypeVar("V")

#: The counter of replica ids, beside those of the collection kinds.
REPLICA_COUNTER = "replica"


class Admitted(NamedTuple):
    """One statement that contradicts nothing, with the places it was given.

    A named tuple rather than a dataclass: one is built for every commit, at a third of the cost.
    """

    changes: Sequence[Change]
    #: Its commands have the places from ``first_seqno`` to before ``next_seqno``, in order.
    first_seqno: Seqno
    next_seqno: Seqno
    #: Its replies are numbered from here.
    first_reply: int

    @property
    def seqnos(self) -> tuple[Seqno, ...]:
        return cast("tuple[Seqno, ...]", tuple(range(self.first_seqno, self.next_seqno)))


class Ledger:
    """What is live and how far each counter is, as of the last admitted statement."""

    def __init__(self, loaded: Loaded) -> None:
        #: ``_names`` and ``_objects`` are inverse to each other.
        self._objects: dict[GlobalId, str] = {id: put.name for id, put in loaded.objects.items()}
        self._names: dict[str, GlobalId] = {name: id for id, name in self._objects.items()}
        self._functions: dict[str, None] = dict.fromkeys(loaded.functions)
        self._clusters: dict[str, None] = dict.fromkeys(loaded.clusters)
        self._replicas: dict[ReplicaId, str] = {id: put.cluster for id, put in loaded.replicas.items()}
        self._counters: dict[str, int] = {str(kind): next for kind, next in loaded.next_ids.items()}
        self._counters[REPLICA_COUNTER] = loaded.next_replica
        self._writer_epochs: dict[GlobalId, WriterEpoch] = dict(loaded.writer_epochs)
        self._step: dict[None, Step] = {} if loaded.step is None else {None: loaded.step}
        self._through: dict[tuple[str, Channel], Seqno] = {key: log.through for key, log in loaded.logs.items()}
        self._reply_keys: deque[str] = deque(reply.key for reply in loaded.replies)
        self._reply_key_set: set[str] = set(self._reply_keys)
        self.next_seqno: Seqno = loaded.next_seqno
        self._next_reply = loaded.next_reply
        #: How to take back the statement that is being admitted; empty between statements, as is ``_put``.
        self._undo: list[Callable[[], object]] = []
        self._put: list[ObjectPut | ReplicaPut] = []

    def admit(self, changes: Sequence[Change]) -> Admitted:
        """Takes a statement in, or raises and is as before."""
        first_seqno, first_reply, appended = self.next_seqno, self._next_reply, 0
        replies: dict[str, None] = {}
        clusters = self._clusters
        try:
            for change in changes:
                # By type and first, without match: commands are most of what is ever written.
                if type(change) is LogAppended:
                    if change.cluster not in clusters:
                        raise _broken("a command was appended to an unknown cluster", change.cluster)
                    _check_bytes("command", change.body)
                    appended += 1
                elif isinstance(change, ReplyRemembered):
                    self._reply(change, replies)
                else:
                    self._take(change)
            self._check_allotted()
        except BaseException:
            for undo in reversed(self._undo):
                undo()
            raise
        finally:
            self._undo.clear()
            self._put.clear()
        if replies:
            self._remember(replies)
        self.next_seqno = Seqno(first_seqno + appended)
        return Admitted(changes=changes, first_seqno=first_seqno, next_seqno=self.next_seqno, first_reply=first_reply)

    def admit_compaction(self, cluster: str, channel: Channel, through: Seqno, reduced: Sequence[bytes]) -> None:
        """Takes a compaction in, or raises and is as before."""
        if cluster not in self._clusters:
            raise _broken("the log of an unknown cluster was compacted", cluster)
        before = self._through[cluster, channel]
        if not before <= through < self.next_seqno:
            place = f"through {through} of {cluster}'s {channel} log; it reaches from {before} to {self.next_seqno - 1}"
            raise _broken("a log was compacted beyond its ends", place)
        for body in reduced:
            _check_bytes("command", body)
        self._through[cluster, channel] = through

    def _take(self, change: Change) -> None:
        match change:
            case ObjectPut(id=id, name=name):
                self._put.append(change)
                self._put_object(change, id, name)
            case ObjectDropped(id=id):
                if id not in self._objects:
                    raise _broken("an unknown object was dropped", str(id))
                self._delete(self._names, self._objects[id])
                self._delete(self._objects, id)
                self._delete(self._writer_epochs, id)
            case IdsAllotted(kind=kind, next=next):
                self._rise(self._counters, kind, next, f"the next id of kind {kind}")
            case ReplicaIdsAllotted(next=next):
                self._rise(self._counters, REPLICA_COUNTER, next, "the next replica id")
            case FunctionPut(name=name, definition=definition):
                _check_name(name)
                _check_text(definition)
                self._set(self._functions, name, None)
            case FunctionDropped(name=name):
                if name not in self._functions:
                    raise _broken("an unknown function was dropped", name)
                self._delete(self._functions, name)
            case ClusterPut(name=name):
                _check_name(name)
                _check_text(change.definition)
                self._set(self._clusters, name, None)
                for channel in Channel:
                    self._set(self._through, (name, channel), self._through.get((name, channel), Seqno(0)))
            case ClusterDropped(name=name):
                self._drop_cluster(name)
            case ReplicaPut(cluster=cluster, replica=replica):
                self._put.append(change)
                _check_text(change.definition)
                if cluster not in self._clusters or self._replicas.get(replica, cluster) != cluster:
                    raise _broken("a replica was put where it cannot be", f"{replica} in {cluster}")
                self._set(self._replicas, replica, cluster)
            case ReplicaDropped(cluster=cluster, replica=replica):
                if self._replicas.get(replica) != cluster:
                    raise _broken("an unknown replica was dropped", f"{replica} of {cluster}")
                self._delete(self._replicas, replica)
            case WriterEpochAllotted(id=id, epoch=epoch):
                _check_number(id.number)
                if epoch == self._writer_epochs.get(id):
                    raise _broken("a writer epoch was allotted twice", f"{epoch} of {id}")
                self._rise(self._writer_epochs, id, epoch, f"the writer epoch of {id}")
            case StepOpened(step=step):
                self._rise(self._step, None, step, "the opened step")
            case LogAppended() | ReplyRemembered():
                raise InvariantBroken("a change was taken twice")
            case _:
                assert_never(change)

    def _put_object(self, change: ObjectPut, id: GlobalId, name: str) -> None:
        _check_name(name)
        _check_name(change.kind)
        _check_text(change.definition)
        _check_number(id.number)
        owner = self._names.get(name, id)
        if owner != id:
            raise _broken("two live objects were given one name", f"{name!r} names {owner} and {id}")
        if id in self._objects:
            self._delete(self._names, self._objects[id])
        self._set(self._objects, id, name)
        self._set(self._names, name, id)

    def _drop_cluster(self, name: str) -> None:
        if name not in self._clusters:
            raise _broken("an unknown cluster was dropped", name)
        self._delete(self._clusters, name)
        for channel in Channel:
            self._delete(self._through, (name, channel))
        for replica in [replica for replica, cluster in self._replicas.items() if cluster == name]:
            self._delete(self._replicas, replica)

    def _reply(self, change: ReplyRemembered, replies: dict[str, None]) -> None:
        _check_name(change.key)
        _check_bytes("digest", change.request_digest)
        _check_bytes("reply", change.reply)
        if change.key in self._reply_key_set or change.key in replies:
            raise _broken("a reply was remembered twice", change.key)
        replies[change.key] = None

    def _remember(self, replies: dict[str, None]) -> None:
        self._reply_keys.extend(replies)
        self._reply_key_set.update(replies)
        self._next_reply += len(replies)
        while len(self._reply_keys) > REPLIES_MAX:
            self._reply_key_set.discard(self._reply_keys.popleft())

    def _check_allotted(self) -> None:
        """What was put bears an id that is counted as taken, at the latest by the same statement."""
        for put in self._put:
            if isinstance(put, ObjectPut):
                allotted, shown = put.id.number < self._counters[put.id.kind], str(put.id)
            else:
                allotted, shown = put.replica < self._counters[REPLICA_COUNTER], f"replica {put.replica}"
            if not allotted:
                raise _broken("something was put under an id that was never allotted", shown)

    def _rise(self, mapping: dict[K, Any], key: K, value: int, what: str) -> None:
        _check_number(value)
        if value < mapping.get(key, 0):
            raise _broken(f"{what} went back", f"from {mapping[key]} to {value}")
        self._set(mapping, key, value)

    def _set(self, mapping: dict[K, V], key: K, value: V) -> None:
        self._undo.append(_restorer(mapping, key))
        mapping[key] = value

    def _delete(self, mapping: dict[K, V], key: K) -> None:
        self._undo.append(_restorer(mapping, key))
        mapping.pop(key, None)


def _restorer(mapping: dict[K, V], key: K) -> Callable[[], object]:
    if key in mapping:
        value = mapping[key]
        return lambda: mapping.__setitem__(key, value)
    return lambda: mapping.pop(key, None)


def _broken(message: str, detail: str) -> InvariantBroken:
    return InvariantBroken(message, detail=detail)


def _check_bytes(what: str, body: bytes) -> None:
    if len(body) > FIELD_BYTES_MAX:
        raise InvalidRequest(f"a {what} is too large to be stored", detail=f"{len(body)} of {FIELD_BYTES_MAX} bytes")


def _check_name(name: str) -> None:
    """A name is a key of an index, and PostgreSQL refuses to index long ones."""
    if len(name) > NAME_CHARACTERS_MAX:
        raise InvalidRequest("a name is too long", detail=f"{len(name)} of {NAME_CHARACTERS_MAX} characters")
    _check_text(name)


def _check_text(text: str) -> None:
    """Text that one of the databases cannot hold would fail everyone's transaction; it is refused here."""
    if "\0" in text:
        raise InvalidRequest("text with a NUL character cannot be stored", detail=_shown(text))
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest("text that is not valid Unicode cannot be stored", detail=_shown(text)) from error
    if size > FIELD_BYTES_MAX:
        raise InvalidRequest("a text is too large to be stored", detail=f"{size} of {FIELD_BYTES_MAX} bytes")


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:80] + "...")


def _check_number(number: int) -> None:
    if not 0 <= number <= NUMBER_MAX:
        raise _broken("a number does not fit the store", str(number))
