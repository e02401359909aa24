"""`kestrelctl fleet`."""
