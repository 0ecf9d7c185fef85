"""What weights are stored in: types, quantisers, and what those leave alone."""
