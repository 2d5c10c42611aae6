//! Tokenizers, chat templates and streaming text.
