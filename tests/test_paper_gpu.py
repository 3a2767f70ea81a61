"""The paper GPU behaves as its description says, and lesson 5's exercise is checked on it."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest

from helpers.paper_gpu import ALL_BLOCKS, PaperGpu, check_benchmarks
from tests.notebooks.regenerate import NOTEBOOKS

LESSON = NOTEBOOKS / "05-benchmarking.ipynb"
SOLUTION = NOTEBOOKS / "solutions" / "05-benchmarking.ipynb"


def warm() -> PaperGpu:
    gpu = PaperGpu()
    for kernel in ("naive", "tiled"):
        for _ in range(20):
            gpu.launch(kernel)
    gpu.synchronize()
    return gpu


def timed(gpu: PaperGpu, kernel: str = "tiled", blocks: tuple[int, int] = ALL_BLOCKS) -> float:
    start, end = gpu.event(), gpu.event()
    start.record()
    gpu.launch(kernel, blocks)
    end.record()
    end.synchronize()
    return start.time_till(end)


# -- the device ----------------------------------------


def test_a_launch_returns_before_the_kernel_has_run() -> None:
    gpu = warm()
    begin = gpu.clock()
    for _ in range(4):
        gpu.launch("tiled")
    assert gpu.clock() - begin == pytest.approx(4 * 0.005)
    gpu.synchronize()
    assert gpu.clock() - begin == pytest.approx(0.005 + 4 * 0.25)


def test_events_are_taken_by_the_device_and_do_not_wait_for_the_host() -> None:
    assert timed(warm()) == pytest.approx(0.255)  # the launch on an idle device is in it
    gpu = warm()
    gpu.launch("naive")
    assert timed(gpu) == pytest.approx(0.25)


def test_the_first_launch_loads_the_code_and_work_brings_the_clock_up() -> None:
    gpu = PaperGpu()
    times = [round(timed(gpu), 9) for _ in range(40)]
    assert times[0] == pytest.approx(0.005 + 2 * 0.25 + 0.5)
    assert times == sorted(times, reverse=True)
    assert times[-1] == pytest.approx(0.255)
    assert timed(gpu, "naive") == pytest.approx(0.005 + 0.32 + 0.5)


def test_a_copy_makes_the_host_wait_for_all_before_it() -> None:
    gpu = warm()
    begin = gpu.clock()
    gpu.launch("tiled")
    gpu.upload()
    assert gpu.clock() - begin == pytest.approx(0.005 + 0.25 + 0.2)


def test_fewer_blocks_are_less_work_and_leave_elements_unwritten() -> None:
    gpu = warm()
    assert timed(gpu, blocks=(16, 16)) == pytest.approx(0.005 + 0.25 / 4)
    assert gpu.unwritten == 1024 * 1024 * 3 // 4
    assert timed(gpu, blocks=(64, 64)) == pytest.approx(0.255)
    assert gpu.unwritten == 0


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda gpu: gpu.launch("fast"), KeyError, "no kernel 'fast': it has naive, tiled"),
    (lambda gpu: gpu.launch("tiled", (0, 4)), ValueError, r"blocks=\(0, 4\).*at least one"),
    (lambda gpu: gpu.launch("tiled", 4), TypeError, "blocks=4.*two integers"),
    (lambda gpu: gpu.launch("tiled", (4, 2.5)), TypeError, r"blocks=\(4, 2.5\).*two integers"),
    (lambda gpu: gpu.event().synchronize(), RuntimeError, "never recorded: call its record"),
])  # fmt: skip
def test_mistakes_are_told(call: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call(PaperGpu())


# -- the exercise ----------------------------------------


def functions(path: Any, *changes: tuple[str, str]) -> list[Any]:
    """one, two and three of a notebook, with parts of the text replaced."""
    cells = nbformat.read(path, as_version=4).cells
    source = "\n\n".join(
        cell.source for cell in cells if cell.cell_type == "code" and "def " in cell.source
        and "(gpu" in cell.source
    )  # fmt: skip
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    found: dict[str, Any] = {}
    exec(source, found)
    return [found[name] for name in ("one", "two", "three")]


def check(capsys: Any, path: Any, *changes: tuple[str, str]) -> str:
    check_benchmarks(*functions(path, *changes))
    return capsys.readouterr().out


def test_the_exercise_as_it_is_handed_out_is_wrong_in_all_three(capsys: Any) -> None:
    one, two, three = functions(LESSON)
    right = functions(SOLUTION)
    check_benchmarks(one, two, three)
    assert capsys.readouterr().out.startswith("Not done yet: one says 0.005 ms")
    check_benchmarks(right[0], two, three)
    assert "Not done yet: two says" in capsys.readouterr().out
    check_benchmarks(right[0], right[1], three)
    assert "Not done yet: three says" in capsys.readouterr().out


def test_the_solution_passes(capsys: Any) -> None:
    assert check(capsys, SOLUTION) == (
        "one: PASS, 0.25 ms\ntwo: PASS, 1.28 times as fast\nthree: PASS, 8.59 TFLOP/s\n"
    )


FIRST_WAIT = '    gpu.synchronize()  # the warm-up is over before the clock starts\n'
LAST_WAIT = '    gpu.synchronize()  # and all is done before it stops\n'
WARM_UP = '    for _ in range(50):\n        gpu.launch(kernel, blocks)'
EVENTS = '    start.record()\n'


@pytest.mark.parametrize(("change", "found"), [
    ((FIRST_WAIT, ""), "Not done yet: one says"),
    ((LAST_WAIT, ""), "Not done yet: one says 0.005 ms"),
    (("begin) / 20", "begin)"), "Not done yet: one says 5"),
    ((WARM_UP, "    for _ in range(1):\n        gpu.launch(kernel, blocks)"),
     "Not done yet: two says"),
    ((EVENTS, EVENTS + "    gpu.upload()\n"), "Not done yet: two says"),
    ((EVENTS, "    gpu.upload()\n" + EVENTS), "three: PASS"),
    (('time_once(gpu, "naive") / ', ""), "Not done yet: two says 0.25 times"),
    (("1024 // 32, 1024 // 32", "1024 // 64, 1024 // 64"),
     "left 786,432 of 1,048,576 elements of C as they were"),
    (("2 * 1024**3", "1024**3"), "Not done yet: three says"),
    (("return (gpu.clock() - begin) / 20", "return 0.25"), "Not done yet: one says 0.25 ms; on "
     "this paper GPU 0.3 is right"),
    (("return (gpu.clock() - begin) / 20", "return None"), "one returns None, not a number"),
    (("return (gpu.clock() - begin) / 20", "return float('nan')"), "Not done yet: one says nan"),
    (('gpu.launch("tiled")\n    gpu.sync', 'gpu.launch("tilde")\n    gpu.sync'),
     "FAIL: one raises KeyError"),
])  # fmt: skip
def test_other_versions(capsys: Any, change: tuple[str, str], found: str) -> None:
    assert found in check(capsys, SOLUTION, change)


def test_other_functions_are_not_checked(capsys: Any) -> None:
    one, two, _ = functions(SOLUTION)
    check_benchmarks(one, two)
    assert capsys.readouterr().out == "FAIL: give the functions one, two and three, not one, two\n"
    check_benchmarks()
    assert "not nothing" in capsys.readouterr().out
