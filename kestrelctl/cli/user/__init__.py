"""`kestrelctl user` and `kestrelctl group`."""
