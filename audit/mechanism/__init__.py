"""A mechanism of its owner's own, put to the test: any function that makes what an observer gets."""
