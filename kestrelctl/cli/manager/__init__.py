"""`kestrelctl manager`."""
