"""`yunishard up` with fakes for children: `python -m tests.deploy.fake_up SETTINGS`."""

import argparse
import sys

from yunishard.deploy.children import STOP_ORDER
from yunishard.deploy.up import add_up_arguments, run_up

parser = argparse.ArgumentParser()
add_up_arguments(parser)
commands = {role: (sys.executable, "-P", "-m", "tests.deploy.fakes", role) for role in STOP_ORDER}
sys.exit(run_up(parser.parse_args(), commands))
