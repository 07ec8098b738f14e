"""Events as they happen, for any number of readers, each at its own pace."""
