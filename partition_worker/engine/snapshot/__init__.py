"""The snapshot codec: a partition as bytes, and the partition again from those bytes."""
