"""The process around sessions: its processors, memory, distributions, interruptions and seeds."""
