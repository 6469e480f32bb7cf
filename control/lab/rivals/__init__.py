"""Who may decide at the door of a simulated engine: ours, and what others do, one file each."""
