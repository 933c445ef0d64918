"""Scripts: transcripts of what the pure machines are told and do, run and compared line by line."""
