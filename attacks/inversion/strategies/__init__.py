"""Methods of inversion beside the plain search, a file or a few each."""
