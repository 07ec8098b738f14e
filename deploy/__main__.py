"""`python -m yunishard.deploy` is `yunishard up`, for where the console script is not installed."""

import argparse
import sys

from yunishard.deploy.up import add_up_arguments, run_up


def run() -> int:
    """Read the options and start everything; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m yunishard.deploy")
    add_up_arguments(parser)
    return run_up(parser.parse_args())


if __name__ == "__main__":
    sys.exit(run())
