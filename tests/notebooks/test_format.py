"""The form of the committed lessons: what keeps them readable, comparable and small."""

import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

from helpers.show import Source, show
from tests.notebooks.regenerate import NOTEBOOKS, canonical, notebooks

ALL = notebooks()
LESSONS = [path for path in ALL if path.parent == NOTEBOOKS]
BENCHMARKS = "05-benchmarking.ipynb"  # its exercise is in Python, on a paper GPU
NOT_COMPARED = "nbval-ignore-output"


def name(path: Path) -> str:
    return str(path.relative_to(NOTEBOOKS))


every_notebook = pytest.mark.parametrize("path", ALL, ids=name)
every_lesson = pytest.mark.parametrize("path", LESSONS, ids=name)


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def prose(path: Path) -> str:
    return "\n\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")


def outputs(path: Path):
    return [(cell, output) for cell in code_cells(path) for output in cell.outputs]


def test_every_lesson_has_a_solution_and_every_solution_a_lesson():
    solutions = [path.name for path in ALL if path.parent != NOTEBOOKS]
    assert solutions == [path.name for path in LESSONS] != []


@every_notebook
def test_is_valid_and_in_the_canonical_form(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert path.read_text(encoding="utf-8") == canonical(notebook), (
        f"{path.name} was saved by another program or not run: "
        "python -m tests.notebooks.regenerate"
    )


@every_notebook
def test_was_run_from_top_to_bottom(path):
    counts = [cell.execution_count for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1))


@every_notebook
def test_has_cell_ids_that_say_what_the_cell_is(path):
    ids = [cell.id for cell in read(path).cells]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+(-[a-z0-9]+)*", cell_id) for cell_id in ids)


@every_notebook
def test_is_smaller_than_200_kilobytes(path):
    assert path.stat().st_size < 200_000


@every_notebook
def test_has_no_errors_and_nothing_on_stderr(path):
    for cell, output in outputs(path):
        assert output.output_type != "error", cell.id
        assert output.get("name") != "stderr", f"{cell.id}: {output.text}"


@every_notebook
def test_tags_are_those_that_nbval_knows(path):
    for cell in read(path).cells:
        assert set(cell.metadata.get("tags", [])) <= {NOT_COMPARED}, cell.id


@every_notebook
def test_outputs_that_differ_between_machines_are_not_compared(path):
    differing = re.compile(r"[GC]PU time|CPU driver|NVIDIA|image/png|text/html")
    for cell, output in outputs(path):
        # The record is constant; a check of the engine's says the same everywhere.
        of_the_record = re.search(r"h200\(\)|beside_record\(|recorded_times\(", cell.source)
        same = of_the_record or re.match(r"check(_\w+)?\(", cell.source)
        if differing.search(str(output)) and not same:
            assert NOT_COMPARED in cell.metadata.get("tags", []), cell.id


@every_notebook
def test_no_output_names_a_folder_or_an_address(path):
    for cell, output in outputs(path):
        text = output.get("text", "") + str(output.get("data", {}).get("text/plain", ""))
        assert not re.search(r"0x[0-9a-f]{6,}|/(home|root|tmp|usr)\b", text), cell.id


@every_notebook
def test_pictures_have_a_text_for_those_who_cannot_see_them(path):
    for cell, output in outputs(path):
        if "image/png" in output.get("data", {}):
            alt = output.metadata["image/png"]["alt"]
            assert len(alt) > 100 and output.data["text/plain"] == alt, cell.id
    assert "base64" not in prose(path) and "attachment:" not in prose(path)


@every_notebook
def test_shown_source_is_that_of_the_kernel_file(path):
    for cell, output in outputs(path):
        if cell.source.startswith("show("):
            shown = eval(cell.source, {"show": show})
            assert isinstance(shown, Source)
            assert output.data["text/plain"] == str(shown), (
                f"{path.name} shows an older text of {shown.file}: "
                "python -m tests.notebooks.regenerate"
            )


@every_notebook
def test_links_between_files_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)\)", prose(path)):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path, after", list(pairwise(LESSONS)), ids=lambda path: path.name)
def test_a_lesson_ends_with_a_link_to_the_next(path, after):
    last = read(path).cells[-1].source.rstrip().splitlines()[-1]
    assert last.startswith("**Next:** [") and f"({after.name})" in last


@every_notebook
def test_code_cells_have_at_most_25_lines(path):
    for cell in code_cells(path):
        assert len(cell.source.splitlines()) <= 25, cell.id


@every_lesson
def test_lesson_is_short(path):
    cells = read(path).cells
    lines = [len(cell.source.splitlines()) for cell in code_cells(path)]
    assert 15 <= len(cells) <= 35
    assert 600 <= len(prose(path).split()) <= 1200
    assert sum(lines) / len(lines) <= 7, "code cells of about five lines"


@every_lesson
def test_lesson_has_its_parts_in_order(path):
    headings = re.findall(r"^#+ (\w+)", prose(path), re.MULTILINE)
    parts = ["Predict", "Measure", "Explain", "Exercise", "Summary"]
    places = [headings.index(part) for part in parts]
    assert places == sorted(places)
    assert prose(path).count("<details>") == prose(path).count("</details>") >= 1
    assert f"(solutions/{path.name})" in prose(path)


@every_lesson
def test_predictions_are_left_to_the_reader(path):
    predictions = [line for cell in code_cells(path) for line in cell.source.splitlines()
                   if re.match(r"my_\w+ = ", line) and '"""' not in line]
    assert len(predictions) >= 2
    assert all(line.endswith(" = None") for line in predictions)


@every_lesson
def test_has_two_or_three_exercises_and_none_is_done_yet(path):
    cells = {cell.id: cell for cell in code_cells(path)}
    if path.name == BENCHMARKS:
        assert "TODO" in cells["exercise-kernel"].source
        (output,) = cells["exercise-check"].outputs
        assert "Not done yet: " in str(output)
        return
    checks = [cell_id for cell_id in cells if re.fullmatch(r"exercise-\d-check", cell_id)]
    assert checks == [f"exercise-{n + 1}-check" for n in range(len(checks))]
    assert 2 <= len(checks) <= 3
    for check in checks:
        assert "TODO" in cells[check.replace("check", "kernel")].source
        (output,) = cells[check].outputs
        assert output.data["text/plain"].startswith(("Not done yet: ", "FAIL: ")), check
    assert prose(path).count("<summary>Hint</summary>") == len(checks)


@pytest.mark.parametrize("path", [path for path in ALL if path not in LESSONS], ids=name)
def test_every_solution_passes(path):
    if path.name == BENCHMARKS:  # of its exercise, on a paper GPU
        (output,) = next(cell.outputs for cell in code_cells(path) if cell.id == "check")
        assert output.text.count("PASS") == 3
        return
    checks = [cell for cell in code_cells(path) if cell.id.startswith("check-")]
    asked = {cell.id: cell for cell in code_cells(NOTEBOOKS / path.name)}
    assert len(checks) == sum(cell_id.endswith("-check") for cell_id in asked)
    for cell in checks:
        assert cell.source == asked[f"exercise-{cell.id[-1]}-check"].source
        (output,) = cell.outputs
        assert re.match(r"PASS: (matmul_|useful|split)", output.data["text/plain"]), cell.id
