"""The document of the API: made from the table of routes, what is said about each, and the structs that bodies are."""
