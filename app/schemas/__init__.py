"""The wire format: what comes in, strictly read, and what goes out."""
