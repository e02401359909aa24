"""`kestrelctl top`."""
