"""The service for what the scheduler interface has no call for (`admin.proto`) and what protoc generated from it; nothing here is written by hand but the proto."""
