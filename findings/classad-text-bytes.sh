#!/bin/sh
# HTCondor's ClassAd library 25.14.1 (PyPI: htcondor, module classad2).
#
# One would guess: `size()` and `substr()` count letters, because Python hands over and gets back text.
# Seen: they count bytes of UTF-8. Where `substr()` ends within a letter, the expression is read and
# has a value, and Python raises UnicodeDecodeError (a ValueError, no ClassAdException) for it;
# compared inside the expression, the same value does no harm.
# So: catch UnicodeDecodeError around `eval()`, or keep comparisons inside the expression.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install htcondor==25.14.1
PYTHONIOENCODING=utf-8 "$folder/venv/bin/python" - <<'PYTHON' | tee "$folder/seen"
import classad2

for text in (
    'size("München")',
    'substr("München", 3)',
    'substr("München", 0, 2)',
    'substr("München", 0, 2) == substr("München", 0, 2)',
):
    try:
        print(f"{text}: {classad2.ExprTree(text).eval()!r}")
    except UnicodeDecodeError:
        print(f"{text}: UnicodeDecodeError")
PYTHON
diff - "$folder/seen" <<'SEEN'
size("München"): 8
substr("München", 3): 'nchen'
substr("München", 0, 2): UnicodeDecodeError
substr("München", 0, 2) == substr("München", 0, 2): True
SEEN
