"""Waiting for what a controller tells of itself: events, never a pause."""

import threading
from collections.abc import Callable

import plainsong
from tests.processes.deployment import PATIENCE_S


def until(client: plainsong.Client, condition: Callable[[plainsong.Status], bool]) -> plainsong.Status:
    """The first status for which ``condition`` holds, asked for whenever something happens."""
    with client.watch() as events:
        patience = threading.Timer(PATIENCE_S, events.close)
        patience.start()
        try:
            for _ in events:
                status = client.status()
                if condition(status):
                    return status
        finally:
            patience.cancel()
    raise AssertionError(f"it never came to pass: {client.status()}")


def online(replicas: int, cluster: str = "main") -> Callable[[plainsong.Status], bool]:
    """So many replicas are connected and have all their dataflows."""

    def condition(status: plainsong.Status) -> bool:
        members = next(one.replicas for one in status.clusters if one.name == cluster)
        ready = [
            member
            for member in members
            if member.state is plainsong.ReplicaState.ONLINE and member.dataflows_hydrated == member.dataflows_total
        ]
        return len(ready) >= replicas

    return condition
