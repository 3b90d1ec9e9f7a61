"""What makes any PyTorch training loop elastic; it knows nothing of the model, the data or Kubernetes."""
