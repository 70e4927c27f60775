"""The CPU backend: native code through LLVM."""
