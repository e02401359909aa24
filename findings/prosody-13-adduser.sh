#!/bin/sh
# Prosody 13.0.1 of Debian 13 (13.0.1-1+deb131u), in a folder made by mmdebstrap. As root.
#
# One would guess: `prosodyctl adduser` and `prosodyctl register` do the same; one asks for the
# password, the other takes it as a word, and both work before the server's first start, as in 0.12.
# Seen: `adduser` asks the running server, which must have loaded mod_admin_shell, and fails without
# it; `register` writes the account by itself, with no server and no module.
# So: what makes accounts before the first start uses `register`.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mmdebstrap --quiet --variant=apt --include=prosody=13.0.1-1+deb131u trixie "$folder/debian"
mkdir -p "$folder/debian/pool/data" "$folder/debian/pool/certs"
cat >"$folder/debian/pool/prosody.cfg.lua" <<'LUA'
pidfile = "/pool/prosody.pid"
data_path = "/pool/data"
log = { error = "/pool/log" }
VirtualHost "localhost"
LUA
chroot "$folder/debian" chown -R prosody: /pool
prosodyctl() {
    status=0
    chroot "$folder/debian" prosodyctl --config /pool/prosody.cfg.lua "$@" >>"$folder/said" 2>&1 ||
        status=$?
    accounts=$(cd "$folder/debian/pool/data" && find . -name '*.dat' | sort)
    echo "$1: status $status; accounts: ${accounts:-none}"
}
{
    printf 'secret\nsecret\n' | prosodyctl adduser ada@localhost
    grep -o 'Is mod_admin_shell enabled?' "$folder/said"
    prosodyctl register ben localhost secret
} | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
adduser: status 1; accounts: none
Is mod_admin_shell enabled?
register: status 0; accounts: ./localhost/accounts/ben.dat
SEEN
