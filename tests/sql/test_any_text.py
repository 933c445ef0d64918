"""Whatever text comes in, a query comes out or a refusal; nothing else, and the same each time."""

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from controller.sql import (
    CompiledQuery,
    compile_expression,
    compile_predicate,
    compile_query,
    explain,
    validate_name,
)
from reconcile.errors import InvalidRequest
from tests.sql.shapes import SHAPE_TABLES
from tests.sql.shapes import SHAPES as SPARK_SHAPES
from tests.sql.tables import NAMES, columns, compiled
from tests.sql.test_plans import SHAPES
from tests.sql.test_refusals import NOT_YET, REFUSED

SEEDS = [sql for sql, _ in SHAPES.values()] + [sql for sql, *_ in (*REFUSED, *NOT_YET)]
WORDS = (
    "SELECT |FROM |WHERE |GROUP BY |HAVING |ORDER BY |LIMIT |JOIN |ON |UNION ALL |AS |AND |OR |NOT |IN |LIKE"
    "|BETWEEN |CASE WHEN |THEN |ELSE |END |CAST(|NULL |TRUE |DISTINCT |OVER (|WITH |orders |customers |id "
    "|amount |status |count(*)|sum(|upper(|coalesce(|'x'|1.5 |1e9 |o.|INTERVAL 1 DAY |DATE '2020-01-01' "
    "|EXISTS(|LATERAL VIEW |VALUES (1) |--|/*|*/|x'ff'|r'a'|ARRAY<INT>|STRUCT<a: INT>|x -> x|:x|?|::int|{{x}}"
    "|PIVOT(|QUALIFY |SETTINGS |FORMAT |`a`|round(|concat("
)
PIECES = [
    *"()*,.;'\"`+-/%=<>!|&^~?:@$#[]{}\\\n\t 0159eE",
    *WORDS.split("|"),
    *("\0", "\ud800", "🙂", "\u2028"),
]


@st.composite
def mutated(draw: st.DrawFn, seeds: list[str]) -> str:
    """A known text with some pieces put in, cut out or doubled."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        piece = draw(st.sampled_from(PIECES) | st.just(text[start:end] * 2) | st.just(""))
        text = text[:start] + piece + text[end:]
    return text


texts = st.text(max_size=60) | mutated(SEEDS) | st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
fuzzed = settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def outcome(sql: str) -> CompiledQuery | str:
    try:
        return compiled(sql)
    except InvalidRequest as refused:
        return str(refused)


@fuzzed
@given(texts)
def test_any_text_is_compiled_or_refused(sql: str) -> None:
    first = outcome(sql)

    assert outcome(sql) == first
    if isinstance(first, CompiledQuery):
        assert explain(first.plan, NAMES)
        assert compiled(first.text) == first


@fuzzed
@given(mutated(list(SPARK_SHAPES.values())))
def test_any_text_that_needs_spark_is_compiled_or_refused(sql: str) -> None:
    outcomes: list[CompiledQuery | str] = []
    for _ in range(2):
        try:
            outcomes.append(compile_query(sql, SHAPE_TABLES))
        except InvalidRequest as refused:
            outcomes.append(str(refused))

    assert outcomes[0] == outcomes[1]
    if isinstance(query := outcomes[0], CompiledQuery):
        assert explain(query.plan, NAMES)
        assert compile_query(query.text, SHAPE_TABLES) == query


@fuzzed
@given(texts)
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    known = columns("id int", "amount decimal(10,2)", "status string", "a b boolean")
    for compile in (compile_expression, compile_predicate):
        try:
            result = compile(text, known)
        except InvalidRequest:
            continue
        canonical = result if isinstance(result, str) else result[0]
        assert compile(canonical, known) == result


@fuzzed
@given(st.text(max_size=300))
def test_any_name_is_kept_as_it_is_or_refused(name: str) -> None:
    try:
        accepted = validate_name(name)
    except InvalidRequest:
        return

    assert accepted == name
