"""`kestrelctl submit`."""
