"""The broker: who lives where, routing between front ends and workers, roll-outs of configurations."""
