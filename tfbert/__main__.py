"""python -m tfbert WORD ...: see `tfbert.commandline.words`."""

import sys

from tfbert.commandline.words import main

if __name__ == "__main__":
    sys.exit(main())
