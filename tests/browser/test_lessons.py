"""The lessons in JupyterLab, in a real browser: edit a kernel, see what is wrong, mend it."""

from __future__ import annotations

import re

import nbformat

from tests.notebooks.regenerate import NOTEBOOKS

# What the check of lesson 1's exercise says; all that these tests expect of it.
CHECKING = "check(matmul_nt, b_transposed=True)"
NOT_BEGUN = "Not done yet: nothing written"
PASSES = "PASS: matmul_nt\n"
GUARD = ("row < M && col < N", "row < M || col < N")  # what is spoilt, and how
FAILS = re.compile(r"FAIL: reads outside B \(my_nt\.cu:(?P<line>\d+)\)\n")
EDITED, CHECK = "exercise-1-kernel", "exercise-1-check"


def solution(lesson: str) -> str:
    """The cell that solves a lesson's first exercise."""
    notebook = nbformat.read(NOTEBOOKS / "solutions" / lesson, as_version=4)
    return next(cell.source for cell in notebook.cells if cell.id == "kernel-1")


def complaints(lesson) -> list[str]:
    """What the console says of errors, without what JupyterLab itself fails to find."""
    return [text for text in lesson.console if "Failed to load resource" not in text]


def test_edit_the_kernel_of_lesson_1_see_it_fail_and_mend_it(open_lesson):
    lesson = open_lesson("notebooks/01-naive.ipynb")
    lesson.run_all()
    assert not [
        c["id"] for c in lesson.cells() for o in c["outputs"] if o["output_type"] == "error"
    ]
    assert lesson.shown(CHECK).startswith(NOT_BEGUN)
    lesson.show(lesson.cells()[0]["id"])
    lesson.picture("1-run")

    right = solution("01-naive.ipynb")
    wrong = right.replace(*GUARD)
    assert wrong != right
    lesson.type(EDITED, wrong)
    assert lesson.source(EDITED) == wrong
    lesson.run(EDITED)
    found = FAILS.match(lesson.run(CHECK))
    lesson.picture("1-fail")
    assert found, lesson.shown(CHECK)
    assert "B[" in wrong.splitlines()[int(found["line"]) - 1]  # the number is that of the cell

    lesson.type(EDITED, right.replace("sum +=", "sun +="))
    said = lesson.run(EDITED)
    lesson.picture("1-compile-error")
    number = 1 + right.splitlines().index(next(x for x in right.splitlines() if "sum +=" in x))
    assert said.startswith(f'CompileFailed: my_nt.cu({number}): error: identifier "sun"')
    assert "Traceback" not in said and said.count("\n") == 3

    lesson.type(EDITED, right)
    lesson.run(EDITED)
    assert lesson.run(CHECK).startswith(PASSES)
    lesson.picture("1-pass")
    assert complaints(lesson) == []


def test_an_endless_kernel_is_interrupted_and_the_lesson_goes_on(open_lesson):
    lesson = open_lesson("notebooks/solutions/01-naive.ipynb")
    lesson.run_all()
    lesson.type("kernel-1", "%%cuda endless\n__global__ void endless(volatile float *x)\n"
                "{\n    while (x[0] == 0.0f) x[1] = 1.0f;\n}")  # fmt: skip
    assert "kernel endless(volatile float *x)" in lesson.run("kernel-1")
    lesson.type("check-1", "from helpers.memory import upload\nimport numpy as np\n"
                "endless(upload(np.zeros(2, np.float32)), grid=1, block=1)")  # fmt: skip
    lesson.start("check-1")
    lesson.wait_until(lambda cells: any(c["busy"] for c in cells), 10)
    lesson.page.wait_for_timeout(1000)
    assert any(c["busy"] for c in lesson.cells())
    lesson.interrupt()
    said = lesson.shown("check-1", 20)
    lesson.picture("endless-interrupted")
    assert said == "KeyboardInterrupt: kernel endless was interrupted"

    lesson.type("kernel-1", solution("01-naive.ipynb"))
    lesson.run("kernel-1")
    lesson.type("check-1", CHECKING)
    assert lesson.run("check-1").startswith(PASSES)
    assert complaints(lesson) == []


def test_the_pictures_of_lesson_3_appear(open_lesson):
    lesson = open_lesson("notebooks/03-bank-conflicts.ipynb")
    lesson.run_all()
    drawn = [c["id"] for c in lesson.cells()
             if any("image/png" in o.get("data", {}) for o in c["outputs"])]  # fmt: skip
    assert drawn
    for cell in drawn:
        lesson.select(cell)
        image = lesson.page.locator(".jp-Cell.jp-mod-active .jp-RenderedImage img").first
        image.scroll_into_view_if_needed()
        assert image.evaluate("image => image.complete && image.naturalWidth > 300")
        lesson.picture(f"3-{cell}")
    assert complaints(lesson) == []


def test_lesson_5_its_pictures_and_its_exercise(open_lesson):
    lesson = open_lesson("notebooks/05-benchmarking.ipynb")
    lesson.run_all()
    drawn = [c["id"] for c in lesson.cells()
             if any("image/png" in o.get("data", {}) for o in c["outputs"])]  # fmt: skip
    assert {"sweep-here", "sweep-recorded", "roofline-picture", "occupancy-picture",
            "prediction-picture"} == set(drawn)  # fmt: skip
    for cell in drawn:
        lesson.select(cell)
        image = lesson.page.locator(".jp-Cell.jp-mod-active .jp-RenderedImage img").first
        image.scroll_into_view_if_needed()
        assert image.evaluate("image => image.complete && image.naturalWidth > 300")
        lesson.picture(f"5-{cell}")
    assert lesson.shown("exercise-check").startswith("Not done yet: one says 0.005 ms")
    cells = nbformat.read(NOTEBOOKS / "solutions/05-benchmarking.ipynb", as_version=4).cells
    right = "\n\n".join(c.source for c in cells if c.id in ("kernel", "kernel-rest"))
    lesson.type("exercise-kernel", right)
    lesson.run("exercise-kernel")
    assert lesson.run("exercise-check").count("PASS") == 3
    lesson.picture("5-pass")
    assert complaints(lesson) == []


def test_cuda_cells_and_files_have_the_colours_of_cpp(open_lesson):
    lesson = open_lesson("notebooks/solutions/01-naive.ipynb")
    words = ".jp-Cell.jp-mod-active .cm-line span"
    lesson.show("kernel-1")
    assert "const" in lesson.page.locator(words).all_text_contents()  # no word of Python
    lesson.show("check-1")
    assert "True" in lesson.page.locator(words).all_text_contents()
    lesson.type("check-1", "%%cuda other\n__global__ void k(const float *x) { }")
    lesson.page.wait_for_timeout(500)
    assert "const" in lesson.page.locator(words).all_text_contents()
    lesson.type("check-1", "const = None")
    lesson.page.wait_for_timeout(500)
    assert "const" not in lesson.page.locator(words).all_text_contents()
    lesson.open("cuda/02_tiled.cu")
    lesson.picture("file")
    words = lesson.page.locator(".jp-FileEditor .cm-line span").all_text_contents()
    assert "const" in words and "#pragma" in words
    assert complaints(lesson) == []
