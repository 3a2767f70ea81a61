"""Machine code for processors with less than this one: the same bits."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHAT = ["tests/simt/test_ptx_rows.py", "tests/simt/test_tensor.py", "tests/simt/test_programs.py"]
WHICH = "f32_f32_f32 or f16_f16_f16 or f64_f64_f64 or reduction or m16n8k16"


@pytest.mark.engine
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86 processors")
@pytest.mark.parametrize("name", ["haswell", "nehalem"])
def test_the_same_results_without_wide_vectors_and_without_fused_multiply_add(name):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *WHAT, "-k", WHICH],
        cwd=ROOT,
        env={**os.environ, "MATMUL_PROCESSOR": name},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
