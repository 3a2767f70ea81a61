"""``python -m helpers.cpu_driver`` runs a program as python itself does."""

from __future__ import annotations

import pytest

REPORT = """\
import pickle, sys
print(__name__, __file__ if "file" in sys.argv else "", sys.argv[1:], sys.path[0])

class Local:
    pass

pickle.dumps(Local())
import __main__
assert __main__.Local is Local
"""
DRIVER = "import pycuda.autoinit; print(pycuda.autoinit.device.name())\n"


@pytest.fixture
def both(python, tmp_path):
    """The same program by python and by the runner."""
    def run(text: str, *arguments: str, name: str = "script.py"):
        (tmp_path / name).write_text(text)
        return (python(name, *arguments), python("-m", "helpers.cpu_driver", name, *arguments))
    return run


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "sys.exit('sorry')", "raise KeyError('x')",
                                 "def f():\n    1 / 0\nf()", "raise KeyboardInterrupt",
                                 "x = (", "import no_such_module"])
def test_a_script_sees_and_ends_as_under_python(both, end):
    plain, ours = both(REPORT + end + "\n", "file", "-x", "--m=1")
    assert ours.returncode == plain.returncode
    assert ours.stdout == plain.stdout
    assert ours.stderr == plain.stderr


def test_a_module_sees_and_ends_as_under_python(python, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text(REPORT + "raise KeyError(__package__)\n")
    for name in ("package.part", "package", "no_such_module"):
        plain = python("-m", name, "file", "-x")
        ours = python("-m", "helpers.cpu_driver", "-m", name, "file", "-x")
        assert (ours.returncode, ours.stdout, ours.stderr) == (
            plain.returncode, plain.stdout, plain.stderr)


def test_pycuda_programs_run_on_the_cpu_driver(python, tmp_path):
    (tmp_path / "script.py").write_text(DRIVER)
    for arguments in (["script.py"], ["-m", "script"]):
        done = python("-m", "helpers.cpu_driver", *arguments)
        assert (done.stdout, done.stderr) == ("CPU driver (sm_80)\n", "")


def test_folders_and_archives_with_a_main_run(python, tmp_path):
    import zipfile

    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/__main__.py").write_text(DRIVER)
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", DRIVER)
    for name in ("folder", "archive.zip"):
        done = python("-m", "helpers.cpu_driver", name)
        assert (done.stdout, done.stderr) == ("CPU driver (sm_80)\n", "")


def test_a_missing_script_is_pythons_error(python):
    plain, ours = python("no.py"), python("-m", "helpers.cpu_driver", "no.py")
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)
    assert python("-m", "helpers.cpu_driver").returncode == 1


def test_autoinit_in_such_a_program_stays_on_the_cpu_driver(python, tmp_path):
    (tmp_path / "script.py").write_text("import helpers.autoinit as a; print(a.backend)\n")
    done = python("-m", "helpers.cpu_driver", "script.py")
    assert done.stdout.splitlines()[-1] == "cpu" and "CPU driver" in done.stdout
    done = python("-m", "helpers.cpu_driver", "script.py", MATMUL_BACKEND="gpu")
    assert done.returncode == 1 and "runs on the CPU driver already" in done.stderr
