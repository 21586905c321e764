"""Peak memory of a run before the run: the same build and the same update, on tensors that have no contents."""
