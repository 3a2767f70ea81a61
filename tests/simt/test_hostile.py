"""A few of the kernels that do what none should: `python -m tests.fuzz hostile FIRST LAST`."""

from __future__ import annotations

from tests.fuzz import hostile


def test_hostile_kernels():
    assert hostile.try_cases([0, 1, 2, 3]) == []
