"""python -m tfbert.launch --num_workers=N -- COMMAND: see `tfbert.launch`."""

import sys

from tfbert.devices.process import run_program


def main() -> int:
    """The launcher, with this process's command line."""
    from tfbert.launch import launcher

    return launcher.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run_program("tfbert.launch", main))
