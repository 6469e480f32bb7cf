"""The OpenAI HTTP door: bytes on a socket to the desk, and its answers back."""
