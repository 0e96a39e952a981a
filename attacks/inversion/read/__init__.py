"""A message, read as gradients at known weights: what was sent, by what recipe, over which rounds."""
