"""Replicas that die, stop and come back while somebody reads."""

import asyncio
import os
import select
import signal
from collections import Counter
from pathlib import Path

import pytest

import plainsong
import plainsong.aio
from tests.processes.deployment import Deployment, deployed
from tests.processes.waiting import online, until


def prepared(deployment: Deployment, replicas: int = 2) -> None:
    deployment.start()
    with deployment.client() as client:
        client.create_cluster("main", replicas=replicas)
        client.create_table("t", {"k": "int", "v": "int"})
        client.create_view("sums", "SELECT k, sum(v) AS total, count(*) AS n FROM t GROUP BY k")
        client.create_index("sums", ["k"], cluster="main")
        client.insert("t", [{"k": k, "v": 1} for k in range(10)])
        until(client, online(replicas))


@pytest.mark.asyncio
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_no_read_fails_or_is_wrong_when_a_replica_dies(tmp_path: Path, number: signal.Signals) -> None:
    with deployed(tmp_path, "--heartbeat-deadline-ms", "1000") as deployment:
        await asyncio.to_thread(prepared, deployment)
        victim = deployment.replica_pid(1)  # the one that writes the table
        stop = asyncio.Event()
        written = dict.fromkeys(range(10), 1)
        reads = 0

        async with plainsong.aio.connect(deployment.address) as client:

            async def read() -> None:
                nonlocal reads
                while not stop.is_set():
                    k = reads % 10
                    acknowledged = written[k]
                    (row,) = await client.lookup("sums", k)
                    # Strictly serializable: at least what was acknowledged before, never more than was ever sent.
                    assert acknowledged <= row.total <= written[k] + 1
                    reads += 1

            readers = [asyncio.create_task(read()) for _ in range(4)]
            for round in range(20):
                if round == 5:
                    os.kill(victim, number)
                for k in range(10):
                    await client.insert("t", [{"k": k, "v": 1}])
                    written[k] += 1
            stop.set()
            await asyncio.gather(*readers)

            totals = {row.k: row.total for row in await client.peek("sums")}
            assert totals == written
            assert reads > 100
        if number is signal.SIGSTOP:
            os.kill(victim, signal.SIGKILL)


@pytest.mark.asyncio
async def test_a_tail_has_no_gap_and_no_repeat_while_replicas_die_one_after_the_other(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        await asyncio.to_thread(prepared, deployment)
        seen: Counter[tuple[int, int]] = Counter()
        frontier = -1
        async with plainsong.aio.connect(deployment.address) as client:

            async def follow(tail: plainsong.AsyncStream[plainsong.TailBatch], through: int) -> None:
                nonlocal frontier
                while frontier <= through:
                    batch = await anext(tail)
                    assert frontier in (-1, batch.lower.step)
                    assert batch.upper.step is not None
                    frontier = batch.upper.step
                    for row in [] if batch.updates is None else batch.updates.to_pylist():
                        seen[row["k"], row["total"]] += row["_diff"]

            tail = client.tail_batches("sums", cluster="main")
            step = 0
            for round in range(6):
                if round in (2, 4):
                    os.kill(deployment.replica_pid(round // 2), signal.SIGKILL)
                for k in range(5):
                    step = (await client.insert("t", [{"k": k, "v": round}])).step
                await follow(tail, step)

            assert +seen == Counter((row.k, row.total) for row in await client.peek("sums"))


@pytest.mark.asyncio
async def test_each_peek_that_races_with_a_drop_gets_one_answer_or_error(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        await asyncio.to_thread(prepared, deployment)
        async with plainsong.aio.connect(deployment.address) as client:
            for _ in range(10):
                peeks = [asyncio.create_task(client.peek("sums", timeout=20)) for _ in range(20)]
                await peeks[0]
                dropped = asyncio.create_task(client.drop("sums_by_k"))
                peeks += [asyncio.create_task(client.peek("sums", timeout=20)) for _ in range(20)]
                answers = await asyncio.gather(*peeks, return_exceptions=True)
                await dropped

                for answer in answers:
                    if isinstance(answer, BaseException):
                        assert isinstance(answer, plainsong.InvalidRequest), answer
                    else:
                        assert len(answer) == 10
                await client.create_index("sums", ["k"], cluster="main")


def test_without_a_replica_reads_wait_and_a_new_one_answers_them(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        prepared(deployment, replicas=1)
        with deployment.client() as client:
            client.alter_cluster("main", replicas=0)
            with pytest.raises(plainsong.InvalidRequest, match="no replica"):
                client.insert("t", [{"k": 1, "v": 1}])
            with pytest.raises(plainsong.TimedOut):
                client.lookup("sums", 1, timeout=0.3)

            client.alter_cluster("main", replicas=1)

            assert [row.total for row in client.lookup("sums", 1)] == [1]


def test_a_replica_that_is_killed_is_started_again_and_hydrates(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        prepared(deployment, replicas=1)
        with deployment.client() as client:
            pid = deployment.replica_pid(1)

            os.kill(pid, signal.SIGKILL)

            assert [row.total for row in client.lookup("sums", 3)] == [1]
            assert deployment.replica_pid(1) != pid
            status = until(client, online(1))
            assert [one.incarnation for one in status.clusters[0].replicas] == [2]


def test_replicas_end_by_themselves_when_no_controller_comes_back(tmp_path: Path) -> None:
    with deployed(tmp_path, "--orphan-timeout-ms", "300") as deployment:
        prepared(deployment, replicas=1)
        watched = os.pidfd_open(deployment.replica_pid(1))

        deployment.kill()

        ended, _, _ = select.select([watched], [], [], 20)
        os.close(watched)
        assert ended
