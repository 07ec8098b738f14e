"""`python -m yunishard.deploy` is `yunishard up`, for where the console script is not installed."""

import argparse
import sys

from yunishard.deploy.up import add_up_arguments, run_up

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m yunishard.deploy")
    add_up_arguments(parser)
    sys.exit(run_up(parser.parse_args()))
