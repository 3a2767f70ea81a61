"""The CPU driver answers as an H200's driver did, code by code; and what it cannot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RECORD = json.loads((HERE / "h200_codes.json").read_text())

#: Case -> place of a code in it, the CPU driver's code there, and why it is another one.
DIFFERENCES = {
    "registered_memory": (2, 801, "kernels reach the device's own memory and page-locked memory of "
                                  "the driver's, but no other memory of the process"),
}


@pytest.fixture(scope="module")
def codes(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the cases give on the CPU driver."""
    done = subprocess.run(
        [sys.executable, "-m", "helpers.cpu_driver", HERE / "driver_cases.py"], text=True,
        env=environment, cwd=tmp_path_factory.mktemp("cases"), capture_output=True, timeout=120,
        check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", RECORD)
def test_the_codes_are_those_of_an_h200(codes, name):
    expected = list(RECORD[name])
    if name in DIFFERENCES:
        place, code, _reason = DIFFERENCES[name]
        assert expected[place] != code
        expected[place] = code
    assert codes[name] == expected


def test_there_is_a_record_of_each_case(codes):
    assert set(codes) == set(RECORD)
