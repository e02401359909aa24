"""What tests of several rooms are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from storekit import QuickStore


@pytest.fixture
def quick_store(tmp_path: Path) -> Iterator[QuickStore]:
    """An open, empty store that keeps all that is durable, for as long as the test lasts."""
    store = QuickStore(tmp_path / "store")
    store.open()
    yield store
    store.close()
