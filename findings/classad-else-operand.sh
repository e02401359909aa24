#!/bin/sh
# HTCondor's ClassAd library 25.14.1 (PyPI: htcondor, module classad2).
#
# One would guess: what may stand after `?` and `:` may stand after `?:` too.
# Seen: no operator may begin the text after `?:`. `X ?: !Y` is not read, `X ?: (!Y)` is, and so is
# `X ? !Y : 1`. A sign is taken only if a number follows at once: `X ?: -1` is read as the number -1,
# `X ?: - 1` and `X ?: -Y` are not read.
# So: put parentheses around what follows `?:` if it begins with an operator.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install htcondor==25.14.1
"$folder/venv/bin/python" - <<'PYTHON' | tee "$folder/seen"
import classad2

for text in ("X ?: (!Y)", "X ? !Y : 1", "X ?: !Y", "X ?: -1", "X ?: - 1", "X ?: (-Y)", "X ?: -Y"):
    try:
        classad2.ExprTree(text)
        print(f"{text:<10} is read")
    except classad2.ClassAdException:
        print(f"{text:<10} is not read")
PYTHON
diff - "$folder/seen" <<'SEEN'
X ?: (!Y)  is read
X ? !Y : 1 is read
X ?: !Y    is not read
X ?: -1    is read
X ?: - 1   is not read
X ?: (-Y)  is read
X ?: -Y    is not read
SEEN
