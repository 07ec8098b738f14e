"""Preemption: when an ask may preempt, which victims are chosen, and quota enforcement."""
