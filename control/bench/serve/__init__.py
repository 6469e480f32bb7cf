"""`surgetank bench serve`: load against any OpenAI server, and what its callers saw."""
