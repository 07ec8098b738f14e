"""`python -m deploy` is `yunishard up`, for where the console script is not installed."""

import argparse
import sys

from deploy.up import add_arguments, main

parser = argparse.ArgumentParser(prog="python -m deploy")
add_arguments(parser)
sys.exit(main(parser.parse_args()))
