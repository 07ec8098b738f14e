"""Files for operators: the container image, systemd units, Kubernetes manifests, the compose file."""
