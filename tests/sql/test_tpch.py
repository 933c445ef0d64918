"""The table of ``docs/views.md`` on how the queries of TPC-H are maintained is what the compiler does."""

import re
from pathlib import Path

import pytest

from controller.sql import compile_query, explain
from controller.sql.strategies import nodes, strategy
from reconcile.plan_tree import Node
from tests.sql.tpch import QUERIES, TABLES

_PAGE = Path(__file__).parents[2] / "docs" / "views.md"
TOLD = dict(re.findall(r"^\| (Q\d+) \| ([^|]*) \|", _PAGE.read_text(), re.MULTILINE))


def test_all_queries_are_in_the_table() -> None:
    assert len(QUERIES) == 22
    assert TOLD.keys() == QUERIES.keys()


@pytest.mark.parametrize("name", QUERIES)
def test_each_query_is_maintained_as_the_table_says(name: str) -> None:
    plan = compile_query(QUERIES[name], TABLES, allow_order=False).plan

    strategies = [strategy(node) for node in nodes(plan)]
    if "recompute" in strategies:
        expected = "recompute"
    elif "touched keys by nothing" in strategies:
        expected = "incremental, all"
    else:
        expected = "incremental"

    assert re.match(r"recompute|incremental, all|incremental$", TOLD[name].strip())
    assert TOLD[name].startswith(expected)
    assert (", all" in TOLD[name]) == (expected == "incremental, all")
    for said in strategies:
        assert not said or f"[{said}" in explain(plan, {})


def test_the_page_knows_every_strategy_of_these_plans() -> None:
    found = {strategy(node).split(" by ")[0] for sql in QUERIES.values() for node in nodes(compiled(sql))}

    assert found - {""} == {"linear", "accumulate", "touched keys"}
    assert {f"`{word}" in _PAGE.read_text() for word in found} == {True}


def compiled(sql: str) -> Node:
    return compile_query(sql, TABLES, allow_order=False, strict=True).plan
