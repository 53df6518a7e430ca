"""C++ for CPUs: emitters, the build cache, and the runtime that loads and calls compiled code."""
