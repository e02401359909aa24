"""`kestrelctl job`."""
