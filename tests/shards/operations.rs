//! Operations on single keys: composite keys, formats, terms, errors, and who answers.
