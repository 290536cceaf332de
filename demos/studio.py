"""Writes a ModelScope Studio: `python demos/studio.py DIRECTORY WHEEL [MODEL]`."""

from __future__ import annotations

import sys
from pathlib import Path

from dashinfer_lab.demo.studio import write_studio

if __name__ == "__main__":
    directory, wheel, *model = sys.argv[1:]
    for path in write_studio(Path(directory), Path(wheel), *model):
        print(path)
