"""Run every lesson and solution and write the outputs back, in the form the format test wants.

It also draws the picture of README.md again.

    python -m tests.notebooks.regenerate                    # all of them
    python -m tests.notebooks.regenerate notebooks/01-naive.ipynb

Run it after changing a lesson, or a kernel that a lesson shows. A notebook whose cells raise an
error is left as it is.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from helpers.plots import Picture, tiled_step

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
README_PICTURE = ROOT / ".github" / "tiled.png"
CELL_TIMEOUT = 300  # seconds


def notebooks() -> list[Path]:
    """Lessons and solutions, in order."""
    return sorted(NOTEBOOKS.glob("*.ipynb")) + sorted(NOTEBOOKS.glob("solutions/*.ipynb"))


def canonical(notebook: nbformat.NotebookNode) -> str:
    """The notebook as text in the one form that is committed: small differences in git."""
    notebook = nbformat.from_dict(notebook)
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def execute(path: Path, notebook: nbformat.NotebookNode | None = None) -> nbformat.NotebookNode:
    """A copy of the notebook, run from its own folder in a fresh kernel."""
    notebook = nbformat.read(path, as_version=4) if notebook is None else notebook
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        coalesce_streams=True,
        record_timing=False,
    )
    return client.execute()


def readme_picture() -> Picture:
    """The picture of README.md: the data flow of the tiled kernel."""
    return tiled_step(M=8, N=12, K=12, tile=4, block=(1, 1), step=1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebook", nargs="*", type=Path)
    chosen = parser.parse_args(arguments).notebook
    if not chosen:
        README_PICTURE.parent.mkdir(exist_ok=True)
        readme_picture().save(README_PICTURE)
    for path in chosen or notebooks():
        path = path.resolve()
        print(path.relative_to(ROOT), flush=True)
        path.write_text(canonical(execute(path)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
