"""What can never run is told so at once, in a sentence with the value and the limit it met."""

from dataclasses import dataclass

from surgetank.engine.api import GenerateRequest


@dataclass(frozen=True, slots=True)
class Capacity:
    """The sizes that no amount of waiting changes. The control plane may change the last two."""

    vocab_size: int
    context_length: int  # tokens
    kv_tokens: int  # that sequences may hold in the KV pool
    sequences: int  # that may run at once


def misfit(request: GenerateRequest, capacity: Capacity) -> str | None:
    """Why the request can never run; None when it can."""
    prompt, output = len(request.prompt), request.sampling.max_tokens
    if prompt < 1 or output < 1:
        return f"{prompt} prompt tokens and max_tokens {output}; allowed: at least 1 of each"
    if min(request.prompt) < 0 or max(request.prompt) >= capacity.vocab_size:
        return f"prompt has token ids outside the vocabulary of {capacity.vocab_size}"
    if prompt + output > capacity.context_length:
        return (
            f"{prompt} prompt tokens and max_tokens {output} exceed the context of "
            f"{capacity.context_length} tokens"
        )
    return too_large(prompt, output, request.n, capacity)


def too_large(prompt: int, output: int, n: int, capacity: Capacity) -> str | None:
    """Why n choices of so many tokens each can never run; None when they can."""
    if prompt + output - 1 > capacity.kv_tokens:  # the last token is never stored
        return (
            f"{prompt} prompt tokens and max_tokens {output} exceed the KV pool of "
            f"{capacity.kv_tokens} tokens"
        )
    if 1 <= n <= capacity.sequences:
        return None
    return f"n is {n}; allowed: 1 to {capacity.sequences}, the sequences that may run at once"
