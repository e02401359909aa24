"""The accounts that a worker is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from kestrelctl.errors import UsageError
from kestrelctl.worker.credentials import read_credentials


@pytest.mark.parametrize(
    "held", [b"", b"secret\n", b"w@example.org secret more\n", b"\x85\xff\x01"]
)
def test_a_file_of_anything_else_holds_no_accounts(tmp_path: Path, held: bytes) -> None:
    """One that was encrypted, for example."""
    file = tmp_path / "credentials"
    file.touch(mode=0o600)
    file.write_bytes(held)
    with pytest.raises(UsageError, match="holds no credentials"):
        read_credentials(file, 1, "host")
