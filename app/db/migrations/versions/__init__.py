"""One file per step, the newest last."""
