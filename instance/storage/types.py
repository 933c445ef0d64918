"""Which types of sources an instance runs."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from instance.shards.blocking import BlockingPool
from instance.storage.file_reading import MakeReader, arrow_reader
from instance.storage.files import FilesFeed
from instance.storage.generator import GeneratorFeed
from instance.storage.runtime import SOURCE_TYPES
from instance.storage.source import SourceType
from instance.storage.stepped import SteppedSource
from instance.storage.steps import Steps


def source_types(
    steps: Steps, folder: Path, pool: BlockingPool, *, make_reader: MakeReader = arrow_reader
) -> Mapping[str, SourceType]:
    """By the field ``type`` of a source's definition; files keep beside the shards, in ``folder``, what they took."""
    files = partial(FilesFeed, folder=folder, pool=pool, make_reader=make_reader)
    return {
        **SOURCE_TYPES,
        "generator": partial(SteppedSource, steps=steps, make_feed=GeneratorFeed),
        "files": partial(SteppedSource, steps=steps, make_feed=files),
    }
