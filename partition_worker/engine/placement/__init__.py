"""Which queue an application goes to: the placement rules of a partition, and how they are tried."""
