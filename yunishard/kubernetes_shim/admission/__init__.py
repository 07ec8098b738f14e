"""The admission controller: it gives pods to the scheduler as they are created, and checks its configuration."""
