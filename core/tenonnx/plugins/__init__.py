"""Finding plug-ins, what they registered, and which providers a session gets."""
