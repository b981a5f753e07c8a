"""What a training step costs on the machine at hand, beside the authors' arrangement of the same work."""
