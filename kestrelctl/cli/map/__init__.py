"""`kestrelctl map`: a command for each input, in the manner of GNU parallel."""
