//! config.json to ModelSpec: one small file per model family.
