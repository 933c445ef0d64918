"""The manifest of a spine: everything that is needed to have it back from its files, as JSON."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.spine.files import HINT
from instance.spine.hashing import SCHEME
from instance.spine.run import RunFile
from reconcile.errors import StorageFailed
from reconcile.frontiers import Antichain
from reconcile.ids import Step

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNamed:
    """A run in a manifest."""

    file: RunFile
    rows: int
    first: int
    last: int
    later_changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A spine at one moment. Its files are synced and stay as they are for as long as somebody keeps it."""

    schema: pa.Schema
    key: tuple[str, ...]
    horizon: int
    #: The latest step that was inserted.
    newest: int
    #: As its owner said: everything before it is in here.
    upper: Antichain
    #: The oldest first.
    runs: tuple[RunNamed, ...]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(run.file.name for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "hashes": SCHEME,
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode("ascii"),
            "key": list(self.key),
            "horizon": self.horizon,
            "newest": self.newest,
            "upper": self.upper.step,
            "runs": [asdict(run) for run in self.runs],
        }

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> "Manifest":
        """The inverse of ``to_json``. Raises ``StorageFailed`` if it is damaged or of another version."""
        try:
            written = json["format"], json["hashes"]
            if written != (FORMAT, SCHEME):
                detail = f"it has format and hashes {written}, and this version reads {(FORMAT, SCHEME)}"
                raise StorageFailed("a manifest is of another version", detail=detail, hint=HINT)
            upper = json["upper"]
            return cls(
                schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(json["schema"], validate=True))),
                key=tuple(str(name) for name in json["key"]),
                horizon=int(json["horizon"]),
                newest=int(json["newest"]),
                upper=Antichain(None if upper is None else Step(int(upper))),
                runs=tuple(RunNamed(**{**run, "file": RunFile(**run["file"])}) for run in json["runs"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error, OSError, pa.ArrowException) as error:
            raise StorageFailed("a manifest is damaged", detail=repr(error), hint=HINT) from error
