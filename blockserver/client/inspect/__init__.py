"""Looking into a model that runs elsewhere: hidden states between blocks, read, replaced, and turned into tokens."""
