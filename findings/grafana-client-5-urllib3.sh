#!/bin/sh
# grafana-client 5.1.4 (PyPI), with niquests 3.21.2 and urllib3-future 2.25.904; urllib3 2.8.0.
#
# One would guess: a client of Grafana's API brings an HTTP library of its own, and leaves those of
# others in the environment as they are; and what is installed is what `pip list` says.
# Seen: its library urllib3-future has a .pth file, and the next start of any Python there copies it
# over the package urllib3, which `pip list` still calls 2.8.0: boto3, requests and whoever else
# imports urllib3 get another project's code. Uninstalling it takes nothing back: urllib3 is there,
# without most of its files, and `pip check` finds nothing broken.
# So: an environment of its own for what talks to Grafana (an extra of its own, in no worker's lock),
# and a reinstalled urllib3 wherever it was together with others.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip="$folder/venv/bin/pip --disable-pip-version-check -q"
imported() {
    "$folder/venv/bin/python" -c "import urllib3; print('$1:', getattr(urllib3, '__version__', None))"
}
{
    $pip install urllib3==2.8.0
    imported "alone"
    $pip install grafana-client==5.1.4 niquests==3.21.2 urllib3-future==2.25.904
    imported "beside grafana-client"
    echo "pip list: $("$folder/venv/bin/pip" list --format freeze | grep '^urllib3=')"
    $pip uninstall -y grafana-client niquests urllib3-future
    imported "after it was uninstalled"
    $folder/venv/bin/pip check
} | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
alone: 2.8.0
beside grafana-client: 2.25.904
pip list: urllib3==2.8.0
after it was uninstalled: None
No broken requirements found.
SEEN
