"""A few of the kernels that do what none should: `python -m tests.fuzz hostile FIRST LAST`."""

from __future__ import annotations

import pytest

from tests.fuzz import hostile


@pytest.mark.engine
def test_hostile_kernels():
    assert hostile.try_cases([0, 1, 2, 3]) == []
