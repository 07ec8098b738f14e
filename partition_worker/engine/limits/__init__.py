"""What users and groups may use, and what they do use, at every queue."""
