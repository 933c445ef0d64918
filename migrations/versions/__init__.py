"""The revisions, each with what it changes; never edited once released."""
