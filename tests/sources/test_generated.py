"""What a generator makes is a function of its options and of the number of each change."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instance.storage.generated import generated, generator_schema
from reconcile.source_types import BLOCK, Flavour, GeneratorOptions

law = settings(max_examples=60, deadline=None)

options = st.builds(
    GeneratorOptions,
    flavour=st.sampled_from(Flavour),
    seed=st.integers(0, 2**63 - 1),
    keys=st.integers(1, 50),
    update_fraction=st.sampled_from([0.0, 0.1, 0.3, 0.6, 0.9]),
    delete_fraction=st.sampled_from([0.0, 0.05]),
)


def rows(made: GeneratorOptions, first: int, last: int) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in generated(made, first, last).to_pylist()]


@law
@given(options, st.integers(0, 10_000), st.integers(0, 300), st.integers(0, 300))
def test_it_does_not_matter_how_changes_are_cut(made: GeneratorOptions, first: int, some: int, more: int) -> None:
    whole = rows(made, first, first + some + more)

    assert whole == rows(made, first, first + some) + rows(made, first + some, first + some + more)


@law
@given(options, st.integers(1, 700))
def test_nothing_is_taken_back_that_is_not_there(made: GeneratorOptions, changes: int) -> None:
    held: Counter[tuple[object, ...]] = Counter()

    for *row, diff in rows(made, 0, changes):
        held[tuple(row)] += int(str(diff))
        assert held[tuple(row)] in (0, 1)

    ids = [row[0] for row, count in held.items() if count]
    assert len(ids) == len(set(ids))


@law
@given(options, st.integers(0, 20))
def test_a_block_has_as_many_inserts_updates_and_deletes_as_asked_for(made: GeneratorOptions, block: int) -> None:
    changes = rows(made, block * BLOCK, (block + 1) * BLOCK)

    assert sum(row[-1] == 1 for row in changes) == made.inserts + made.updates
    assert sum(row[-1] == -1 for row in changes) == made.updates + made.deletes


@pytest.mark.parametrize("flavour", Flavour)
def test_rows_have_the_columns_that_are_known_and_no_nulls(flavour: Flavour) -> None:
    made = GeneratorOptions(flavour=flavour, update_fraction=0.2)

    table = generated(made, 0, 500)

    assert table.schema.names[:-1] == generator_schema(made).names
    assert [field.type for field in table.schema][:-1] == [field.type for field in generator_schema(made)]
    assert all(column.null_count == 0 for column in table.columns)


def test_another_seed_makes_other_rows_and_keys_are_spread() -> None:
    one, two = (generated(GeneratorOptions(seed=seed, keys=10), 0, 1_000) for seed in (1, 2))

    assert one["key"].to_pylist() != two["key"].to_pylist()
    counts = Counter(one["key"].to_pylist())
    assert set(counts) == set(range(10))
    assert max(counts.values()) < 200
