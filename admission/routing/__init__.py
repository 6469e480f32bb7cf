"""Several engines behind one gate: which are there, and which of them gets a request."""
