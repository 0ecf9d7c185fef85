"""What checkpoints say of themselves: a file's header, or a config alone -> tensors and caches -> a model's cost."""
