"""Both gradients on NVIDIA GPUs; plans can be imported where nothing of CUDA is installed."""
