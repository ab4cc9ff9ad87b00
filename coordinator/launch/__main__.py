"""The door of `python -m coordinator.launch`."""

import sys

from coordinator.launch.cli import main

if __name__ == "__main__":
    sys.exit(main())
