"""The yardstick of the control plane: a bare gRPC server that does nothing with the same messages.

``python -m adapter.bench.echo`` prints where it listens and serves until it is ended.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from plainsong.channels import aio_server, listen
from plainsong.v1 import compute_pb2, compute_pb2_grpc, controller_pb2, controller_pb2_grpc

#: About as long as the answer to a point peek.
ROWS = b"x" * 480


class EchoController(controller_pb2_grpc.ControllerServiceServicer):
    """Answers every lookup at once."""

    async def Lookup(self, request: Any, context: Any) -> controller_pb2.LookupResponse:  # noqa: N802, ARG002  # gRPC's
        return controller_pb2.LookupResponse(step=1, arrow=ROWS)


class EchoCompute(compute_pb2_grpc.ComputeServiceServicer):
    """Takes every frame, parses it and returns its heartbeat."""

    async def Session(  # noqa: N802  # gRPC's own spelling
        self,
        request_iterator: AsyncIterator[compute_pb2.ComputeServiceSessionRequest],
        context: Any,  # noqa: ARG002  # gRPC's own signature
    ) -> AsyncIterator[compute_pb2.ComputeServiceSessionResponse]:
        async for frame in request_iterator:
            if frame.sent_ms:
                response = compute_pb2.ComputeServiceSessionResponse()
                response.responses.add().heartbeat.sent_ms = frame.sent_ms
                yield response


async def serve() -> None:
    server = aio_server()
    echoes: Any = (EchoController, EchoCompute)  # all that is left out is never called
    controller_pb2_grpc.add_ControllerServiceServicer_to_server(echoes[0](), server)
    compute_pb2_grpc.add_ComputeServiceServicer_to_server(echoes[1](), server)
    address = listen(server, "127.0.0.1:0")
    await server.start()
    print(f"echo listens on {address}", flush=True)  # noqa: T201  # for whoever started it
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve())
