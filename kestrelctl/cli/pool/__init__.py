"""`kestrelctl pool`."""
