"""What every bench with clients of its own shares: their attempts, their words, their lateness."""
