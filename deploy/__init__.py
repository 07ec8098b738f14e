"""Local life of the system: `yunishard up` starts the processes, watches them and stops them in order."""
