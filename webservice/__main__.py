"""REST requests about all partitions: `python -m webservice`."""

import sys

from common.names import WEBSERVICE
from common.process import main
from webservice.service import serve

if __name__ == "__main__":
    sys.exit(main(WEBSERVICE, "Answer REST requests about all partitions.", serve))
