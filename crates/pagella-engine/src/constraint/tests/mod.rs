//! Tests over whole constraints; what they share is in `support`.
