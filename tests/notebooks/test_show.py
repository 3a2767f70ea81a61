"""What `show` displays is the file's own text, under the file's own line numbers."""

import html
import re

import pytest

from helpers.show import CUDA_FOLDER, diff, show


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


def test_a_near_miss_is_told():
    with pytest.raises(FileNotFoundError, match="did you mean 02_tiled.cu"):
        show("2_tiled.cu")


def test_a_function_of_any_kind_is_found_whole(tmp_path, monkeypatch):
    text = """#define N 3
// a comment with helper(1) { }
template <typename T>
__device__ T helper(T x)
{
    if (x) { return x; }
    return "}"[0];
}
__global__ void k(float *x) { x[0] = helper(1); }
"""
    (tmp_path / "mine.cu").write_text(text)
    monkeypatch.setattr("helpers.show.WORK_FOLDER", tmp_path)
    assert show("mine.cu", "helper").lines == tuple(text.splitlines()[2:8])
    assert show("work/mine.cu", "k").lines == tuple(text.splitlines()[8:9])
    assert str(show("mine.cu", "k")).startswith("work/mine.cu\n   9  __global__")


def test_a_difference_has_the_lines_of_both_files_under_their_numbers():
    difference = diff("01_naive.cu", "02_tiled.cu")
    data = difference._repr_mimebundle_()
    plain_html = html.unescape(re.sub(r"<[^>]+>", "", data["text/html"]))
    assert [line.rstrip() for line in plain_html.splitlines()] == data["text/plain"].splitlines()
    old, new = ((CUDA_FOLDER / name).read_text().splitlines()
                for name in ("01_naive.cu", "02_tiled.cu"))
    seen = [row for row in difference.rows if row]
    for before, after, text in seen:
        assert not before or old[before - 1].rstrip() == text
        assert not after or new[after - 1].rstrip() == text
    # Every line that is not in it stands in both files, in the same order.
    left = ([line.rstrip() for n, line in enumerate(lines, 1) if n not in {row[k] for row in seen}]
            for k, lines in enumerate((old, new)))
    assert len({tuple(lines) for lines in left}) == 1


def test_a_file_does_not_differ_from_itself():
    assert str(diff("02_tiled.cu", "02_tiled.cu")).endswith("(no difference)")


def test_a_difference_of_two_functions():
    rows = diff("01_naive.cu", "01_naive.cu", "matmul_naive", "matmul_naive_uncoalesced").rows
    assert any(row and not row[0] and "matmul_naive_uncoalesced" in row[2] for row in rows)
