"""What is wrong, in one word: a verdict with its evidence, from a short history of the service."""
