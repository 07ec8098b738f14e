"""Programs that play resource managers and clusters: the fake RM, the replay of logs, and the simulator."""
