"""The headline experiments: one claim of the gate a file, its bar beside what is measured."""
