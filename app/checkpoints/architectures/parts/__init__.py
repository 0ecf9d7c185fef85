"""What layers are made of, shared by the families."""
