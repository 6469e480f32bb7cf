"""Prompts of a wanted number of tokens, out of words that most vocabularies hold whole."""

import random

_TEXT = """
time year way day man world life hand part place week case point home water room area money
story fact month right study book eye job word business issue side kind head house service
friend father power hour game line end member law car city name team minute idea body back
parent face level office door health art war party result change morning reason air force
river stone field light music paper plant ground letter number street table tree wind
"""
WORDS = tuple(_TEXT.split())


def prompt_of(tokens: int, tokens_per_word: float, rng: random.Random) -> str:
    """Random words: no two prompts share a beginning. As many as the measured ratio says."""
    count = max(1, round(tokens / tokens_per_word))
    return "".join(f" {word}" for word in rng.choices(WORDS, k=count))
