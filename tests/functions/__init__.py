"""Functions of CUDA's headers, each called on many arguments, here and on an H200."""
