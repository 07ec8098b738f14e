"""REST requests about all partitions: `python -m yunishard.webservice`."""

import sys

from yunishard.common.names import WEBSERVICE
from yunishard.common.process.main import main
from yunishard.webservice.service import serve

if __name__ == "__main__":
    sys.exit(main(WEBSERVICE, "Answer REST requests about all partitions.", serve))
