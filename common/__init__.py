"""What two processes share: messages and their arithmetic, pure; and the shell files that wait (see docs/style.md)."""
