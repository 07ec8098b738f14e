"""Predicates: which nodes a pod may run on, by the rules of kube-scheduler's filters."""
