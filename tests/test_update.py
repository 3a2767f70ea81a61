"""`make update` in a repository of its own: the student's work and the course's both survive."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from helpers import update as updating

LESSON, KERNEL, OTHER = "notebooks/01.ipynb", "cuda/02.cu", "notebooks/02.ipynb"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=T", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def notebook(*sources: str, output: str = "") -> str:
    return json.dumps(
        {
            "cells": [
                {"cell_type": "code", "source": [source], "outputs": [output]} for source in sources
            ]
        }
    )


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def everything(root: Path) -> set[str]:
    """The text of every file that git does not keep for itself."""
    return {p.read_text() for p in root.rglob("*") if p.is_file() and ".git" not in p.parts}


@pytest.fixture
def course(tmp_path):
    root = tmp_path / "course"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    write(root, ".gitignore", "/mine/\n")
    write(root, LESSON, notebook("lesson", "exercise"))
    write(root, OTHER, notebook("other"))
    write(root, KERNEL, "kernel\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    return root


@pytest.fixture
def student(course, tmp_path):
    git(tmp_path, "clone", "-q", "course", "student")
    return tmp_path / "student"


def publish(course: Path, **files: str) -> None:
    for name, text in files.items():
        write(course, {"lesson": LESSON, "kernel": KERNEL, "other": OTHER}.get(name, name), text)
    git(course, "add", "-A")
    git(course, "commit", "-qm", "newer")


def test_an_edited_notebook_and_its_new_version_both_survive(course, student, capsys):
    mine, newer = notebook("lesson", "my answer"), notebook("better lesson", "exercise")
    write(student, LESSON, mine)
    publish(course, lesson=newer)
    assert updating.main(student) == 0
    assert (student / LESSON).read_text() == newer
    assert (student / "mine/01.ipynb").read_text() == mine
    assert "your notebooks/01.ipynb is now mine/01.ipynb" in capsys.readouterr().out
    assert git(student, "status", "--porcelain") == ""


def test_the_next_time_the_next_copy(course, student):
    texts = []
    for answer in ("first", "second", "second"):
        texts.append(notebook("lesson", answer))
        write(student, LESSON, texts[-1])
        publish(course, lesson=notebook(f"lesson after {len(texts)}", "exercise"))
        assert updating.main(student) == 0
    assert set(texts) <= everything(student)
    assert sorted(p.name for p in (student / "mine").iterdir()) == [
        "01-2.ipynb",
        "01.ipynb",
    ]


def test_what_is_changed_here_only_stays(course, student):
    write(student, KERNEL, "my kernel\n")
    publish(course, lesson=notebook("better lesson"))
    assert updating.main(student) == 0
    assert (student / KERNEL).read_text() == "my kernel\n"
    assert not (student / "mine").exists()


def test_kernels_are_kept_too_staged_or_not(course, student):
    write(student, KERNEL, "my kernel\n")
    git(student, "add", "-A")
    publish(course, kernel="newer kernel\n")
    assert updating.main(student) == 0
    assert (student / KERNEL).read_text() == "newer kernel\n"
    assert (student / "mine/02.cu").read_text() == "my kernel\n"


def test_a_notebook_that_was_only_run_leaves_no_copy(course, student):
    write(student, LESSON, notebook("lesson", "exercise", output="3"))
    publish(course, lesson=notebook("better lesson"))
    assert updating.main(student) == 0
    assert not (student / "mine").exists()


def test_a_file_of_ones_own_where_a_new_one_comes(course, student):
    for stage in (False, True):
        name = f"notebooks/05-{stage}.ipynb"
        write(student, name, notebook(f"my own {stage}"))
        if stage:
            git(student, "add", name)
        publish(course, **{name: notebook(f"lesson five {stage}")})
        assert updating.main(student) == 0
        assert (student / name).read_text() == notebook(f"lesson five {stage}")
        assert notebook(f"my own {stage}") in everything(student)


def test_a_lesson_that_was_renamed_there_or_deleted_here(course, student, capsys):
    mine = notebook("lesson", "my answer")
    write(student, LESSON, mine)
    (student / KERNEL).unlink()
    git(course, "mv", LESSON, "notebooks/01-new.ipynb")
    publish(course, kernel="newer kernel\n")
    assert updating.main(student) == 0
    assert not (student / LESSON).exists() and (student / "notebooks/01-new.ipynb").exists()
    assert (student / "mine/01.ipynb").read_text() == mine
    assert (student / KERNEL).read_text() == "newer kernel\n"
    assert "is now mine/01.ipynb; the course has it no longer" in capsys.readouterr().out


def test_a_broken_notebook_is_kept_as_it_is(course, student):
    write(student, LESSON, "{ no notebook")
    publish(course, lesson=notebook("better lesson"))
    assert updating.main(student) == 0
    assert "{ no notebook" in everything(student)


def test_nothing_new(course, student, capsys):
    write(student, LESSON, notebook("mine"))
    assert updating.main(student) == 0
    assert "newest version already" in capsys.readouterr().out
    assert (student / LESSON).read_text() == notebook("mine")


def test_commits_of_ones_own_are_left_alone(course, student, capsys):
    write(student, LESSON, notebook("mine"))
    git(student, "commit", "-qam", "mine")
    publish(course, lesson=notebook("better lesson"))
    before = git(student, "rev-parse", "HEAD")
    assert updating.main(student) == 1
    assert "you have commits of your own" in capsys.readouterr().err
    assert git(student, "rev-parse", "HEAD") == before
    assert (student / LESSON).read_text() == notebook("mine")


OBSTACLES = {
    "no upstream": "follows none", "no network": "git fetch says", "no branch": "git switch main",
    "no repository": "no git checkout", "no room": "cannot be written to", "unrelated": "rewritten",
    "merge": "git merge --abort",
}  # fmt: skip


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_stops_an_update_changes_nothing(course, student, capsys, obstacle):
    mine = notebook("mine")
    if obstacle == "merge":
        write(student, KERNEL, "my kernel\n")
        git(student, "commit", "-qam", "mine")
    write(student, LESSON, mine)
    publish(course, lesson=notebook("better lesson"), kernel="newer kernel\n")
    if obstacle == "no upstream":
        git(student, "branch", "--unset-upstream")
    elif obstacle == "no network":
        course.rename(course.with_name("gone"))
    elif obstacle == "no branch":
        git(student, "checkout", "-q", "--detach")
    elif obstacle == "no room":
        (student / "mine").write_text("a file of that name")
    elif obstacle == "unrelated":
        git(course, "checkout", "-q", "--orphan", "other")
        git(course, "commit", "-qm", "anew")
        git(course, "branch", "-M", "main")
    elif obstacle == "merge":
        git(student, "stash")
        with pytest.raises(subprocess.CalledProcessError):
            git(student, "pull", "-q", "--no-rebase")
        write(student, LESSON, mine)
    else:
        (student / ".git").rename(student / "nothing")
    assert updating.main(student) == 1
    said = capsys.readouterr().err
    assert said.startswith("Not updated: ") and OBSTACLES[obstacle] in said
    assert (student / LESSON).read_text() == mine


def test_a_folder_where_the_course_has_a_file_is_left_alone(course, student, capsys):
    (student / LESSON).unlink()
    write(student, f"{LESSON}/mine.txt", "mine")
    publish(course, lesson=notebook("better lesson"))
    assert updating.main(student) == 1
    assert "notebooks/01.ipynb is a folder here" in capsys.readouterr().err
    assert "mine" in everything(student)
