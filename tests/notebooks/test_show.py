"""What `show` displays is the file's own text, under the file's own line numbers."""

import html
import re

import pytest

from helpers.show import CUDA_FOLDER, show


@pytest.mark.parametrize("file, function", [
    ("01_naive.cu", None), ("01_naive.cu", "matmul_naive"),
    ("01_naive.cu", "matmul_naive_uncoalesced"), ("02_tiled.cu", "matmul_tiled")])
def test_text_and_html_are_the_lines_of_the_file(file, function):
    lines = (CUDA_FOLDER / file).read_text().splitlines()
    data = show(file, function)._repr_mimebundle_()
    plain_html = html.unescape(re.sub(r"<[^>]+>", "", data["text/html"]))
    for text in (data["text/plain"], plain_html):
        shown = text.splitlines()[1:]
        assert len(shown) == len(lines) if function is None else 5 < len(shown) < len(lines)
        for line in shown:
            number = int(line[:4])
            assert line[6:].rstrip() == lines[number - 1].rstrip()


def test_a_function_is_shown_whole():
    lines = show("02_tiled.cu", "matmul_tiled").lines
    assert lines[0].startswith("__global__ void matmul_tiled(") and lines[-1] == "}"


def test_what_is_not_there_is_named():
    with pytest.raises(ValueError, match="01_naive.cu has no function matmul_tiled"):
        show("01_naive.cu", "matmul_tiled")
    with pytest.raises(FileNotFoundError):
        show("no_such.cu")
