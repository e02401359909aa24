"""What tests of several rooms are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from storekit import QuickStore


@pytest.fixture
def quick_store(tmp_path: Path) -> Iterator[QuickStore]:
    """An open, empty store that keeps all that is durable, for as long as the test lasts."""
    # To load a store takes longer than most tests, which need none.
    from storekit import QuickStore

    store = QuickStore(tmp_path / "store")
    store.open()
    yield store
    store.close()
