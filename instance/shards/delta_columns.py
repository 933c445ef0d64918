"""Columns of a Delta shard, as Delta writes them and as Arrow has them."""

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from deltalake import Field
from deltalake import Schema as DeltaSchema

from instance.shards.contents import other_columns
from plainsong.types import DIFF, STEP, updates_schema


def columns_here(id: object, written: str, known: pa.Schema) -> pa.Schema:
    """The schema of a shard whose log says ``written``, for a handle that was opened for ``known``.

    Either may have columns, at the end, that the other lacks; raises ``InvalidRequest`` if they differ otherwise. Of
    the columns in both the types are those that were asked for, because some types of Arrow are one to Delta.
    """
    there, asked = _user_fields(DeltaSchema.from_json(written)), _user_fields(DeltaSchema.from_arrow(known))
    for ours, theirs in zip(there, asked, strict=False):
        if (ours.name, ours.type) != (theirs.name, theirs.type):
            raise other_columns(id, f"it has {_shown(ours)} where {_shown(theirs)} was asked for")
    arrow = pa.schema(DeltaSchema(there).to_arrow())
    fields = [known.field(place) if place < len(asked) else arrow.field(place) for place in range(len(there))]
    return updates_schema(pa.schema(fields))


def added_fields(there: pa.Schema, wanted: pa.Schema) -> list[Field]:
    """The columns of ``wanted`` beyond those that are ``there``."""
    return _user_fields(DeltaSchema.from_arrow(wanted))[len(there) - 2 :]


def _user_fields(schema: DeltaSchema) -> list[Field]:
    return [field for field in schema.fields if field.name not in (STEP, DIFF)]


def _shown(field: Field) -> str:
    return f"{field.name!r} {field.type}"
