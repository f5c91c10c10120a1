"""`python -m tfbert.train`, which is not how training starts."""

import sys

if __name__ == "__main__":
    sys.exit("tfbert.train is a part of the code. Received: python -m tfbert.train. Run python -m tfbert train.")
