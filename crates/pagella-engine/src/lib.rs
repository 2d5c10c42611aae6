//! State over time: sessions, sampling, streaming generation.
