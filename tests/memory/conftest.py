"""One suite for both: operators and indexes that keep their state in dicts, and those that keep it in spines."""

from collections.abc import Iterator

import pytest

from instance.arranged.rendering import arranged_rules
from instance.arranged.tending import in_memory
from tests.memory import harness


@pytest.fixture(scope="module", params=["dicts", "spines"])
def state(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runtimes for which a test names nothing else have their state in these."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "spines":
            patch.setattr(harness, "RULES", arranged_rules(lambda _: in_memory))
            patch.setattr(harness, "ARRANGE", harness.on_spine)
        yield
