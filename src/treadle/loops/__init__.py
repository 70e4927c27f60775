"""The loop IR: kernels as loops over strided buffers, whatever prints them."""
