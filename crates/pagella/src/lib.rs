//! A local LLM inference engine for EXL2 and GPTQ models.
