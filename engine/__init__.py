"""Work: the inference engine, and the protocol by which the gate drives any engine."""
