"""The catalog: names and what they mean, in memory as the store keeps them."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from controller.objects import CatalogObject, ObjectKind
from plainsong.logs import LOGGING, is_reserved
from reconcile.errors import InvalidRequest, InvariantBroken
from reconcile.ids import CollectionKind, GlobalId
from reconcile.limits import NAME_CHARACTERS_MAX


class Catalog:
    """All live objects, found by name and by id, in order of creation."""

    def __init__(self) -> None:
        self._by_id: dict[GlobalId, CatalogObject] = {}
        self._by_name: dict[str, CatalogObject] = {}
        #: What each live object is needed by. Keys and values are live objects.
        self._needed_by: dict[GlobalId, dict[GlobalId, None]] = {}
        #: The next number of each kind of id; never decreases, so that no id is ever used twice.
        self._next: dict[CollectionKind, int] = {}

    def __iter__(self) -> Iterator[CatalogObject]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def names(self) -> Iterable[str]:
        return self._by_name

    def get(self, id: GlobalId) -> CatalogObject | None:
        return self._by_id.get(id)

    def named(self, name: str) -> CatalogObject | None:
        return self._by_name.get(name)

    def require(self, name: str, *kinds: ObjectKind) -> CatalogObject:
        """The object of that name and one of these kinds; refuses with a hint if there is none."""
        object = self._by_name.get(name)
        if object is None and is_reserved(name):
            raise _belongs_to_the_system(name)
        if object is None:
            # What is too long to be a name is like none, and would take its time to compare.
            like = get_close_matches(name, self._by_name, n=1) if len(name) <= NAME_CHARACTERS_MAX else ()
            hint = f"did you mean {like[0]}?" if like else "list what there is with `plainsong status`"
            raise InvalidRequest(f"there is no object named {name!r}", hint=hint)
        if kinds and object.kind not in kinds:
            raise InvalidRequest(f"{name} is a {object.kind}, not a {' or '.join(kinds)}")
        return object

    def needed_by(self, id: GlobalId) -> list[CatalogObject]:
        """What reads ``id`` directly."""
        return [self._by_id[reader] for reader in self._needed_by.get(id, ())]

    def with_readers(self, id: GlobalId) -> list[CatalogObject]:
        """``id`` and all that needs it, readers before what they read."""
        order: dict[GlobalId, None] = {}

        def visit(id: GlobalId) -> None:
            for reader in self._needed_by.get(id, ()):
                if reader not in order:
                    visit(reader)
            order[id] = None

        visit(id)
        return [self._by_id[id] for id in order]

    def indexes_on(self, id: GlobalId) -> list[CatalogObject]:
        return [reader for reader in self.needed_by(id) if reader.kind is ObjectKind.INDEX and reader.on == id]

    def next_id(self, kind: CollectionKind) -> GlobalId:
        return GlobalId(kind, self._next.get(kind, 1))

    # --- changes ------------------------------------------------------------------------------------------

    def allot(self, kind: CollectionKind, next: int) -> None:
        if next < self._next.get(kind, 1):
            raise InvariantBroken(f"ids of kind {kind} would be used again from {next}")
        self._next[kind] = next

    def put(self, object: CatalogObject) -> None:
        if object.id in self._by_id or object.name in self._by_name:
            raise InvariantBroken(f"{object.id} or {object.name!r} is in the catalog already")
        self._by_id[object.id] = object
        self._by_name[object.name] = object
        for needed in object.needs:
            self._needed_by.setdefault(needed, {})[object.id] = None

    def alter(self, object: CatalogObject) -> None:
        """Replaces an object by itself with other columns: what it needs, and who needs it, stays."""
        before = self._by_id[object.id]
        if (before.name, before.kind, before.needs) != (object.name, object.kind, object.needs):
            raise InvariantBroken(f"{before.name} would become another object")
        self._by_id[object.id] = object
        self._by_name[object.name] = object

    def drop(self, id: GlobalId) -> None:
        object = self._by_id.pop(id)
        del self._by_name[object.name]
        if self._needed_by.pop(id, None):
            raise InvariantBroken(f"{object.name} is dropped while others need it")
        for needed in object.needs:
            readers = self._needed_by.get(needed, {})
            readers.pop(id, None)
            if not readers:
                self._needed_by.pop(needed, None)


def _belongs_to_the_system(name: str) -> InvalidRequest:
    if name in LOGGING:
        return InvalidRequest(
            f"{name} can only be read, by a peek or a query that names a replica",
            detail="it is what each replica tells of itself, at the moment",
            hint=f"as in peek({name!r}, replica=1)",
        )
    return InvalidRequest(f"there is no {name!r}", hint=f"there are {', '.join(LOGGING)}")
