"""The files feed: a folder that is looked at again and again, or emptied once."""

import asyncio
from pathlib import Path

from instance.shards.blocking import BlockingPool
from instance.storage.feed import Batch, Note
from instance.storage.file_reading import MakeReader, arrow_reader
from instance.storage.folder import Folder
from instance.storage.tables import table_schema
from reconcile.errors import InvariantBroken
from reconcile.ids import WriterEpoch
from reconcile.source_types import FilesOptions, options_of
from reconcile.sources import SourceDescription


class FilesFeed:
    """Takes the files of one folder; beside the shards it keeps what it took, and what did not fit."""

    def __init__(
        self,
        description: SourceDescription,
        note: Note,
        *,
        folder: Path,
        pool: BlockingPool,
        make_reader: MakeReader = arrow_reader,
    ) -> None:
        options = options_of(description)
        if not isinstance(options, FilesOptions):
            raise InvariantBroken(f"source {description.id} does not read files")
        columns = table_schema(description)
        loop = asyncio.get_running_loop()

        def note_from_thread(text: str) -> None:
            loop.call_soon_threadsafe(note, text)

        self._options = options
        self._pool = pool
        self._reader = make_reader(options, columns)
        self._folder = Folder(
            options,
            self._reader,
            columns,
            taken=folder / "taken" / str(description.id),
            rejected=folder / "rejected" / str(description.id),
            note=note_from_thread,
        )

    async def open(self, position: str, writer_epoch: WriterEpoch) -> None:
        await self._pool.run(lambda: self._folder.open(position, writer_epoch))

    async def receive(self) -> Batch | None:
        while True:
            batch = await self._pool.run(self._folder.take)
            if batch is not None:
                return batch
            settled = await self._pool.run(self._folder.look)
            if self._folder.has_ready:
                continue
            if settled and self._options.bounded:
                return None
            await asyncio.sleep(self._options.poll_ms / 1000)

    async def close(self) -> None:
        """What was taken is on the disk; what a reader keeps meanwhile goes."""
        await self._pool.run(self._reader.close)
