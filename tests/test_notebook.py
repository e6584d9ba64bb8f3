"""The notebook of ``examples/`` runs from its first cell to its last, and is kept without outputs."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from support.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"


def test_the_notebook_is_kept_without_outputs() -> None:
    cells: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 8
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of what runs notebooks
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    read = nbformat.read(NOTEBOOK, as_version=4)
    done = nbclient.NotebookClient(read, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output.get("data", {}) for cell in done.cells for output in cell.get("outputs", [])]
    pages = [data["text/html"] for data in shown if "text/html" in data]
    assert sum('class="privsql"' in page for page in pages) == 6  # plan, release, answer, verified, measured, attacked
    assert (tmp_path / "patients.duckdb").exists()
    printed = [output["text"] for cell in done.cells for output in cell.get("outputs", []) if "text" in output]
    assert any("threshold 0.1" in text for text in printed)
