"""The scheduler interface (`scheduler.proto`) and what protoc generated from it; nothing here is written by hand but the proto."""
