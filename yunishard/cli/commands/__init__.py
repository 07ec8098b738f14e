"""The commands of `yunishard` that ask or change a running system, or work on files; one module for each group."""
