"""From a kernel's variant to machine code."""
