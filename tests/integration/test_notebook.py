"""A real notebook uses a pool: its cells run in a kernel, and show what they should."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from test_local_pool import Home, home  # noqa: F401  (a fixture)

pytestmark = pytest.mark.timeout(180)

CELLS = [
    "from kestrelctl.client.blocking import Client\n"
    "from kestrelctl.client.executor import KestrelExecutor\n"
    "pool = Client().__enter__()",
    'job = pool.submit(["sh", "-c", "echo $(({n} * {n}))"], array="1-5", name="squares")\n'
    "job.wait()\n"
    "job",
    "pool.jobs()",
    "pool",
    "executor = KestrelExecutor()\n"
    "def square(number):\n"  # of the notebook itself, so it travels by value
    "    return number * number\n"
    "print(sum(executor.map(square, range(1000))))\n"
    "executor",
    "executor.shutdown()\npool.__exit__()",
]
#: Runs the cells of a notebook, and writes what they show into it.
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[1])
"""


def test_cells_run_and_show_jobs_pool_and_calls(home: Home) -> None:  # noqa: F811
    home.run("up")
    cells = [
        {"cell_type": "code", "id": f"cell-{place}", "metadata": {}, "outputs": [],
         "execution_count": None, "source": source}
        for place, source in enumerate(CELLS)
    ]  # fmt: skip
    file = home.work / "notebook.ipynb"
    file.write_text(
        json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})
    )
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(file)], env=home.env, cwd=home.work,
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = []
    for cell in json.loads(file.read_text())["cells"]:
        texts = ["".join(each.get("text", "")) for each in cell["outputs"]]
        pages = ["".join(each.get("data", {}).get("text/html", "")) for each in cell["outputs"]]
        shown.append("".join(texts + pages))
    assert "job 1 <b>squares</b> is done: 5 done" in shown[1]
    assert shown[2].startswith("<table>")
    assert "pool <b>default</b>: workers: " in shown[3]
    assert "332833500" in shown[4]
    assert "1,000 done, 0 waiting" in shown[4]
