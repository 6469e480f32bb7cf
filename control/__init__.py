"""Judgement: configuration, the control loop, the admin API, the command line and the processes."""
