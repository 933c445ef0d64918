"""Log reading: the durable command log for people."""

from collections.abc import Iterator

from controller.store.interface import Loaded
from plainsong.codec import decode_command
from plainsong.v1 import controller_pb2 as pb
from reconcile.compute_protocol import AllowCompaction, AllowWrites, CreateDataflows, UpdateConfiguration
from reconcile.storage_protocol import AlterSources, CreateSources

RECORDS_MAX = 1_000


def read_log(loaded: Loaded, cluster: str, first: int) -> Iterator[tuple[pb.ReadLogResponse, int]]:
    """Records from ``first`` on in batches, in order, each with its last seqno; what was compacted comes first."""
    records: list[pb.LogRecord] = []
    for (name, _), log in loaded.logs.items():
        if cluster in ("", name):
            if first <= 1:
                records += [pb.LogRecord(seqno=0, cluster=name, text=described(body)) for body in log.base]
            records += [
                pb.LogRecord(seqno=record.seqno, cluster=name, text=described(record.body), epoch=record.epoch)
                for record in log.tail
                if record.seqno >= first
            ]
    records.sort(key=lambda record: record.seqno)
    for start in range(0, len(records), RECORDS_MAX):
        batch = records[start : start + RECORDS_MAX]
        yield pb.ReadLogResponse(records=batch), batch[-1].seqno


def described(body: bytes) -> str:
    """One logged command in a line."""
    command = decode_command(body)
    match command:
        case CreateDataflows(dataflows=dataflows):
            parts = [
                f"{', '.join(f'{export.kind} {export.id}' for export in flow.exports)}"
                f" over {', '.join(map(str, flow.imports)) or 'nothing'} as of {flow.as_of}"
                for flow in dataflows
            ]
            return f"create {'; '.join(parts)}"
        case AllowCompaction(id=id, since=since):
            return f"drop {id}" if since.is_closed else f"compact {id} to {since}"
        case AllowWrites(id=id):
            return f"allow {id} to write"
        case CreateSources(sources=sources):
            parts = [f"{dict(source.definition).get('type', 'source')} {source.id}" for source in sources]
            return f"create {', '.join(parts)}"
        case AlterSources(sources=sources):
            return f"alter {', '.join(str(source.id) for source in sources)}"
        case UpdateConfiguration(configuration=configuration):
            return f"configure {configuration}"
        case _:
            return type(command).__name__
