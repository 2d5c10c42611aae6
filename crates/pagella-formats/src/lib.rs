//! What is on disk: safetensors, EXL2, GPTQ and plain linears, exact dequantisation.
