"""A span of any decoder model as one module: which families can be cut and how, where their files are, what they take."""
