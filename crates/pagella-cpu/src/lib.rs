//! The CPU backend: exact and wide kernels with runtime dispatch.
