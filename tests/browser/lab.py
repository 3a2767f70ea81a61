"""JupyterLab in a browser: what a student sees and does."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOKEN = "browser-test"
# No telling news, no checks for updates, nothing of the user's own settings.
SETTINGS = ("JUPYTER_CONFIG_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR",
            "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")  # fmt: skip
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
STARTED = 120.0  # seconds until JupyterLab answers
READY = """() => {
    const widget = window.jupyterapp?.shell.currentWidget;
    const kernel = widget?.sessionContext?.session?.kernel;
    return widget?.content?.widgets && kernel?.connectionStatus === 'connected'
        && kernel.status === 'idle' && widget.context.isReady;
}"""
# The state is the application's own: cells far from the window have no element in the page.
CELL = "window.jupyterapp.shell.currentWidget.content.widgets.find(c => c.model.id === %s)"
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .filter(cell => cell.model.type === 'code')
    .map(cell => ({id: cell.model.id, count: cell.model.executionCount,
                   busy: cell.model.executionState === 'running'
                       || cell.promptNode?.textContent.includes('*') || false,
                   outputs: cell.model.outputs.toJSON()}))"""


def browser() -> str | None:
    """Chromium on this machine."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


class Server:
    """JupyterLab, started as `make lab` does it, in a copy of the project."""

    def __init__(self, folder: Path, log: Path):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        own = folder.parent / "jupyter"
        environment = os.environ | {name: str(own / name.lower()) for name in SETTINGS}
        environment |= {"PYTHONPATH": str(folder), "MATMUL_BACKEND": "cpu"}
        arguments = (f"--no-browser --ServerApp.port={port} --IdentityProvider.token={TOKEN} "
                     "--LabApp.expose_app_in_browser=True")  # fmt: skip
        self.log = log.open("w")
        self.process = subprocess.Popen(
            ["make", "-o", "setup", "lab", f"ARGS={arguments}"],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + STARTED
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise RuntimeError(f"JupyterLab has ended: {Path(self.log.name).read_text()}")
            try:
                urllib.request.urlopen(f"{self.url}/api?token={TOKEN}", timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        raise RuntimeError(f"JupyterLab does not answer within {STARTED:g} s")

    def stop(self) -> None:
        """End JupyterLab and its kernels."""
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()


class Lesson:
    """A notebook in an open page."""

    def __init__(self, page: Any, server: Server, path: str, pictures: Path):
        self.page, self.pictures = page, pictures
        self.console: list[str] = []
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.goto(f"{server.url}/lab/tree/{path}?token={TOKEN}&reset", wait_until="commit")
        self._wait_for(READY, seconds=90)

    def _note(self, kind: str, text: str) -> None:
        if kind == "error":
            self.console.append(text)

    def _wait_for(self, script: str, seconds: float) -> None:
        self.page.wait_for_function(script, timeout=1000 * seconds, polling=100)

    # -- what a student does ----------------------------------------

    def open(self, path: str) -> None:
        """Open a file beside the notebook, as from the file browser."""
        self.page.evaluate(
            f"""() => window.jupyterapp.commands.execute('docmanager:open',
                {{path: {json.dumps(path)}}})"""
        )
        self.page.locator(".jp-FileEditor .cm-line").first.wait_for()
        self.page.wait_for_timeout(1000)

    def run_all(self, seconds: float = 240) -> None:
        """Run > Run All Cells, and wait for the last one."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        self.wait_until(lambda cells: all(c["count"] and not c["busy"] for c in cells), seconds)
        self._wait_for(READY, seconds=60)

    def show(self, cell: str) -> None:
        """Bring a cell into view and make it the active one."""
        self.page.evaluate(f"""async () => {{
            const notebook = window.jupyterapp.shell.currentWidget.content;
            const index = notebook.widgets.indexOf({CELL % json.dumps(cell)});
            await notebook.scrollToItem(index, 'start');
            notebook.activeCellIndex = index;
        }}""")
        self.page.wait_for_timeout(200)

    def select(self, cell: str) -> None:
        """Click into a cell's editor."""
        self.show(cell)
        editor = self.page.locator(".jp-Notebook .jp-Cell.jp-mod-active .cm-content").first
        editor.scroll_into_view_if_needed()
        editor.click()

    def type(self, cell: str, text: str) -> None:
        """Put `text` into a cell in place of what is there."""
        self.select(cell)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(text)

    def run(self, cell: str, seconds: float = 60) -> str:
        """Shift-Enter in a cell; what it then shows."""
        self.start(cell)
        return self.shown(cell, seconds)

    def start(self, cell: str) -> None:
        """Shift-Enter in a cell, without waiting."""
        self.select(cell)
        self.page.keyboard.press("Shift+Enter")
        self.page.wait_for_timeout(300)

    def interrupt(self) -> None:
        """The ■ of the toolbar."""
        self.page.locator('[data-command="notebook:interrupt-kernel"], '
                          'jp-button[title^="Interrupt"]').first.click()  # fmt: skip

    # -- what a student sees ----------------------------------------

    def cells(self) -> list[dict[str, Any]]:
        """The code cells: id, execution count, whether they run, outputs."""
        return self.page.evaluate(CELLS)

    def source(self, cell: str) -> str:
        """The text of a cell."""
        return self.page.evaluate(f"() => {CELL % json.dumps(cell)}.model.sharedModel.getSource()")

    def shown(self, cell: str, seconds: float = 60) -> str:
        """The text of a cell's outputs, errors included, once it has come to its end."""
        found = self.wait_until(lambda cells: not any(c["busy"] for c in cells), seconds)
        outputs = next(c["outputs"] for c in found if c["id"] == cell)
        return re.sub(r"\x1b\[[0-9;]*m", "", "".join(map(_text, outputs)))

    def wait_until(self, holds: Callable[[list], bool], seconds: float) -> list[dict[str, Any]]:
        """The cells, once `holds` is true of them."""
        until = time.monotonic() + seconds
        while not holds(cells := self.cells()):
            if time.monotonic() > until:
                self.picture("timeout")
                raise TimeoutError(f"after {seconds:g} s: {json.dumps(cells)[-3000:]}")
            self.page.wait_for_timeout(100)
        return cells

    def picture(self, name: str) -> None:
        """A screenshot, to look at: build/browser/NAME.png."""
        self.pictures.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=self.pictures / f"{name}.png")


def _text(output: dict[str, Any]) -> str:
    if output["output_type"] == "error":
        return "\n".join(output["traceback"])
    text = output.get("text") or output.get("data", {}).get("text/plain", "")
    return text if isinstance(text, str) else "".join(text)
