"""The contract of kernels as tests, for plug-ins that have some: ``contract.KernelTests``."""
