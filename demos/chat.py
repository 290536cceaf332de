"""A chat in the browser: `python demos/chat.py [MODEL] [options]`, as `dashinfer-lab demo`."""

from __future__ import annotations

import sys

from dashinfer_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
