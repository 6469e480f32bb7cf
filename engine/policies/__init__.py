"""Who enters when: each policy is one file, and one line in table.py."""
