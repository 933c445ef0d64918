"""Replicas that somebody else runs."""

import asyncio

import pytest

from controller.orchestrator.fixed import FixedOrchestrator
from controller.orchestrator.interface import Orchestrator, ReplicaKey, Running, Starting, Stopped
from reconcile.ids import Epoch, ReplicaId

KEY = ReplicaKey("main", ReplicaId(1))


@pytest.mark.asyncio
async def test_a_replica_listens_where_it_was_said_to() -> None:
    orchestrator: Orchestrator = FixedOrchestrator({KEY: "host:1"})

    assert orchestrator.status(*KEY) == Stopped()
    await orchestrator.ensure(*KEY, Epoch(1))

    assert orchestrator.status(*KEY) == Running(address="host:1")
    assert await orchestrator.address(*KEY) == orchestrator.listening(*KEY) == "host:1"


@pytest.mark.asyncio
async def test_who_asks_too_early_waits_for_the_address() -> None:
    orchestrator = FixedOrchestrator()
    await orchestrator.ensure(*KEY, Epoch(1))
    assert isinstance(orchestrator.status(*KEY), Starting)
    asking = asyncio.create_task(orchestrator.address(*KEY))
    await asyncio.sleep(0)

    orchestrator.assign(*KEY, "host:2")

    assert await asking == "host:2"


@pytest.mark.asyncio
async def test_a_dropped_replica_is_forgotten() -> None:
    other = ReplicaKey("main", ReplicaId(2))
    orchestrator = FixedOrchestrator({KEY: "host:1", other: "host:2"})
    await orchestrator.ensure(*KEY, Epoch(1))

    await orchestrator.retain([other])
    await orchestrator.close(stop_children=True)

    assert orchestrator.status(*KEY) == Stopped()
    assert (orchestrator.listening(*KEY), orchestrator.listening(*other)) == (None, "host:2")
