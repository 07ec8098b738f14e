"""`python -m deploy` is `yunishard up`, for where the console script is not installed."""

import argparse
import sys

from deploy.up import add_arguments, main


def run() -> int:
    """Read the options and start everything; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m deploy")
    add_arguments(parser)
    return main(parser.parse_args())


if __name__ == "__main__":
    sys.exit(run())
