"""The front end for people and programs that watch: REST and metrics of all partitions."""
