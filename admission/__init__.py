"""Decision: tickets, the gate, its queue and limits, and the doors that requests come through."""
