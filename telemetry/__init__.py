"""Facts: the metric catalogue, the recorder that writes each fact once, and what reads them."""
