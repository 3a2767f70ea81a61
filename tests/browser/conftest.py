"""One JupyterLab and one browser for all tests; without a browser they say what to install."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.browser.lab import Lesson, Server, browser
from tests.setup.checkout import ROOT, copy_of_the_project

PICTURES = ROOT / "build" / "browser"
WINDOW = {"width": 1280, "height": 900}


def _explain() -> str:
    sudo = "" if os.geteuid() == 0 else "sudo "
    known = {
        "apt-get": f"{sudo}apt-get update && {sudo}apt-get install -y chromium",
        "dnf": f"{sudo}dnf install -y chromium",
        "pacman": f"{sudo}pacman -S --needed --noconfirm chromium",
    }
    line = next((line for tool, line in known.items() if shutil.which(tool)), None)
    paste = f"Paste this line, then run make again:\n  {line}" if line else "Install it."
    return f"Missing on this machine: Chromium. {paste}"


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    folder = copy_of_the_project(tmp_path_factory.mktemp("lab") / "project")
    (folder / ".venv").symlink_to((ROOT / ".venv").resolve())
    PICTURES.mkdir(parents=True, exist_ok=True)
    server = Server(folder, PICTURES / "jupyterlab.log")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def chromium():
    if browser() is None:
        pytest.fail(_explain(), pytrace=False)
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's own refuses root
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def open_lesson(chromium, server):
    """A function that opens a notebook in a fresh page; at the end its console is looked at."""
    opened = []

    def opening(path: str) -> Lesson:
        page = chromium.new_page(viewport=WINDOW)
        opened.append(Lesson(page, server, path, Path(PICTURES)))
        return opened[-1]

    yield opening
    for lesson in opened:
        lesson.page.evaluate("() => window.jupyterapp.serviceManager.sessions.shutdownAll()")
        lesson.page.close()
