"""Many runs at once: threads on one session, and processes with a session each."""
