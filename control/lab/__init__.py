"""The lab: the production gate against simulated engines and clients, in virtual time."""
