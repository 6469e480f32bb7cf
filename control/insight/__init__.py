"""What an operator may ask of the running service, beyond its status."""
