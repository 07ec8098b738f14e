"""`python -m tests.metrics`: the table of `docs/metrics.md`, from the page of a filled system."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.metrics.filled import filled, page
from tests.metrics.series import read
from tests.metrics.test_page import table

with TemporaryDirectory() as folder, filled(Path(folder)) as (_, endpoints):
    sys.stdout.write("\n".join([*table(read(page(endpoints))), ""]))
