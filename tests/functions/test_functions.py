"""A sample of CUDA's functions, compared with an H200: `python -m tests.functions.run` does all."""

from __future__ import annotations

from tests.functions import run


def test_functions_of_the_headers_do_as_on_an_h200():
    assert run.differences(step=16) == []
