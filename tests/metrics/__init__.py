"""Metrics as Prometheus, Grafana and people see them: the page of a whole system, and what is made for it."""
