#!/bin/sh
# bubblewrap 0.8.0 of Debian 12 (0.8.0-2+deb12u1), in a folder made by mmdebstrap. As root.
#
# One would guess: with a process namespace (--unshare-pid) nothing that a command has started is
# left when bwrap returns, because the namespace ends with the command, as it does with
# `unshare --pid --fork`, whose child is the namespace's init.
# Seen: bwrap returns as soon as the command ends, with its status; but the namespace's init is a
# process of bwrap's own, which waits for everybody else, so what the command has left behind lives
# on. With --die-with-parent that init dies with bwrap and takes the rest along; with --as-pid-1
# the command is the init.
# So: who cleans up after bwrap asks for one of the two, or waits for the `child-pid` that
# --json-status-fd tells.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mmdebstrap --quiet --variant=apt --include=bubblewrap=0.8.0-2+deb12u1 bookworm "$folder/debian" \
    >"$folder/said" 2>&1
lib=$folder/debian/usr/lib/x86_64-linux-gnu
bubble() {
    "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$folder/debian/usr/bin/bwrap" "$@" \
        --unshare-pid --bind "$folder/debian" / --proc /proc --dev /dev \
        sh -c '(sleep 1; echo "lived on" >/left) & exit 3' || echo "status $?"
    if [ -e "$folder/debian/left" ]; then echo "at once"; fi
    sleep 2
    cat "$folder/debian/left" 2>/dev/null || echo "ended"
    rm -f "$folder/debian/left"
}
{
    bubble
    bubble --die-with-parent
    bubble --as-pid-1
} | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
status 3
lived on
status 3
ended
status 3
ended
SEEN
