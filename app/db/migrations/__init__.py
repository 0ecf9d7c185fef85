"""How the schema came about; applied in order when the server starts."""
