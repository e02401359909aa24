"""`kestrelctl worker`."""
