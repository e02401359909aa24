"""`kestrelctl flock`."""
