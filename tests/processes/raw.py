"""Speaking to an instance without a controller: one stream, frame by frame."""

from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Literal, TypeAlias

import grpc
import pytest

import plainsong
from plainsong import codec
from plainsong.channels import channel
from plainsong.codec import ComputeReplyFrame, StorageReplyFrame
from plainsong.errors import from_rpc
from plainsong.security import ClientTls
from reconcile.compute_protocol import ComputeCommand
from reconcile.storage_protocol import StorageCommand
from tests.processes.deployment import PATIENCE_S

Kind: TypeAlias = Literal["compute", "storage"]

PATHS: dict[Kind, str] = {
    "compute": "/plainsong.v1.ComputeService/Session",
    "storage": "/plainsong.v1.StorageService/Session",
}


class Speaker:
    """One stream to an instance. What it says goes out at once; what it hears comes in order."""

    def __init__(self, to: grpc.Channel, kind: Kind) -> None:
        self._kind = kind
        self._frames: SimpleQueue[bytes | None] = SimpleQueue()
        call: Any = to.stream_stream(PATHS[kind])
        self._heard: Any = call(iter(self._frames.get, None), timeout=PATIENCE_S)

    def say(self, *commands: ComputeCommand | StorageCommand) -> None:
        """One frame with these commands."""
        # Any: which commands belong to which stream is for the instance to judge.
        said: Any = commands
        encode: Any = codec.encode_compute_commands if self._kind == "compute" else codec.encode_storage_commands
        self.say_bytes(encode(said).SerializeToString())

    def say_bytes(self, frame: bytes) -> None:
        self._frames.put(frame)

    def hear(self) -> ComputeReplyFrame | StorageReplyFrame:
        frame: bytes = next(self._heard)
        return codec.decode_compute_response(frame) if self._kind == "compute" else codec.decode_storage_response(frame)

    def refusal(self) -> plainsong.PlainsongError:
        """What the instance ends the stream with; whatever it says before that is passed over."""
        with pytest.raises(grpc.RpcError) as raised:
            for _ in self._heard:
                pass
        return from_rpc(raised.value)

    def close(self) -> None:
        self._frames.put(None)
        self._heard.cancel()


@contextmanager
def speaking(address: str, kind: Kind, tls: ClientTls | None = None) -> Iterator[Speaker]:
    with channel(address, tls) as to:
        speaker = Speaker(to, kind)
        try:
            yield speaker
        finally:
            speaker.close()
