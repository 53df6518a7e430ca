"""The GPU back end: an IR program as a persistent Triton kernel. docs/compiler.md lists its files in reading order."""
