"""README.md names only what is there."""

import re

import pytest

from tests.notebooks.regenerate import NOTEBOOKS, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SOURCES = "".join(
    path.read_text(encoding="utf-8")
    for path in [*(ROOT / "helpers").rglob("*.py"), ROOT / "tests/notebooks/test_format.py"]
)
# Messages of PyCUDA, Python and CUDA itself.
FOREIGN = (
    "ImportError: libcuda.so.1: cannot open shared object file",
    "No module named 'helpers'", "'pycuda'", "nvcc compilation of", " failed",
    "invalid type on parameter #3", "0-based", "an illegal memory access was encountered",
)


def test_links_and_the_picture_lead_somewhere():
    targets = re.findall(r"\]\(([^)]+)\)", README) + re.findall(r'src="([^"]+)"', README)
    assert ".github/tiled.png" in targets
    assert len(targets) >= 5
    for target in targets:
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE)
    assert {"lab", "test", "demo"} <= set(commands)
    for target in commands:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_modules_to_run_exist():
    modules = re.findall(r"python -m ([a-z_.]+)", README)
    assert modules
    for module in modules:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


def test_table_lists_exactly_the_lessons_that_exist():
    listed = re.findall(r"^\| \[[^\]]+\]\((notebooks/[^)]+)\)", README, re.MULTILINE)
    assert listed == sorted(str(path.relative_to(ROOT)) for path in NOTEBOOKS.glob("*.ipynb"))


def test_folders_exist():
    for folder in re.findall(r"^\| `([a-z]+)/` ", README, re.MULTILINE):
        assert (ROOT / folder).is_dir(), folder


def messages() -> list[str]:
    rows = README.partition("## Troubleshooting")[2].splitlines()
    return [text for row in rows if row.startswith("| `")
            for text in re.findall(r"`([^`]+)`", row.split(" | ")[0])
            if not text.startswith("make ")]


@pytest.mark.parametrize("message", messages())
def test_troubleshooting_quotes_messages_that_the_code_prints(message):
    message = message.replace("MATMUL_BACKEND", "{VARIABLE}")
    for part in re.split(r"[()…]", message):
        part = part.removeprefix("out-of-bounds read of 4 bytes")
        assert part in SOURCES or part.strip() in FOREIGN or part in FOREIGN, part
