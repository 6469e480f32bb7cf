"""Other engines as child processes; these files need their own packages, and never surgetank."""
