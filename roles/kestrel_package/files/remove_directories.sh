#!/bin/sh
# Removes directories with all that is in them. A directory on which something is mounted stays, empty:
# it belongs to whoever mounted it. Prints a line for each that was there. Fails, with what is left, if
# anything else stays.
set -eu
status=0
for directory; do
    [ -d "$directory" ] || continue
    if mountpoint -q "$directory" && [ -z "$(ls -A "$directory")" ]; then continue; fi
    echo "$directory"
    said=$(rm -rf -- "$directory" 2>&1) || :
    [ -d "$directory" ] || continue
    left=$(find "$directory" ! -type d -print -quit)
    [ -n "$left" ] || left=$(find "$directory" -depth -type d -empty ! -exec mountpoint -q {} \; -print -quit)
    if [ -n "$left" ]; then
        echo "$left is left: $said" >&2
        status=1
    fi
done
exit $status
