"""The GPU back end: from an IR program to a persistent Triton kernel. docs/compiler.md has the files in reading order."""
