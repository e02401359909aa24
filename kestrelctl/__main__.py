"""`python -m kestrelctl`: the same as the `kestrelctl` command."""

from __future__ import annotations

from kestrelctl.cli.main import main

if __name__ == "__main__":
    main()
