"""What users use, level by level."""
