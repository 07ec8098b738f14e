"""The front end for operators, browsers and monitoring: REST and metrics of all partitions."""
