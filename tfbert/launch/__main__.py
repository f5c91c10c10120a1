"""python -m tfbert.launch --num_workers=N -- COMMAND: see `tfbert.launch`."""

import sys

from tfbert.launch.launcher import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
