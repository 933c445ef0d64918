"""Everything that a runtime promises holds whatever its indexes are kept in."""

from collections.abc import Iterator

import pytest

from instance.memory.arranged import InDicts
from tests.memory.harness import Running, on_spine


@pytest.fixture(scope="module", params=[InDicts, on_spine], ids=["dicts", "spine"])
def arranged(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the indexes of a runtime under test are kept in."""
    usual = Running.__dict__["arrange"]
    Running.arrange = staticmethod(request.param)
    yield
    Running.arrange = usual
