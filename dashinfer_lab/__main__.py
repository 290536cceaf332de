"""`python -m dashinfer_lab`: the command line without an installed script."""

from __future__ import annotations

import sys

from dashinfer_lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
