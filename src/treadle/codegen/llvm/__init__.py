"""LLVM: a text builder, the targets, the compiler and the worker runtime.

`text` builds a module, `jit` makes code of it, `schedule` and `runtime` run its kernels.
"""
