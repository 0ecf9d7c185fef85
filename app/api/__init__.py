"""HTTP: routers that only translate, the table of errors, text for terminals."""
