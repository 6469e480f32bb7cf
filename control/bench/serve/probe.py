"""A look at the server before the run: its model, what it takes, how it counts a prompt."""

import random
from pathlib import Path

import httpx
from tokenizers import Tokenizer

from surgetank.admission.client.httpx_transport import AsyncRetryTransport
from surgetank.admission.client.retrier import Retrier
from surgetank.control.bench.document import BenchError
from surgetank.control.bench.serve.clients import Server
from surgetank.control.bench.serve.texts import ByRatio, ByTokenizer, Line, Writer, prose
from surgetank.control.bench.serve.wishes import Wishes

_EXTRAS: tuple[tuple[str, ...], ...] = (("ignore_eos", "min_tokens"), ("ignore_eos",), ())
_PROBES = (8, 48, 192)  # words
_USUAL = Line(0.0, 1.3)  # English prose in most vocabularies, where a server counts nothing
_REFUSED = frozenset({400, 404, 422})


class Prober:
    """Asks with patience: a refusal is waited out a few times."""

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        url = wishes.url.rstrip("/")
        self.base_url = url if url.endswith("/v1") else f"{url}/v1"
        self._client = httpx.AsyncClient(
            transport=AsyncRetryTransport(Retrier()),
            headers={"authorization": f"Bearer {wishes.api_key}"},
            timeout=max(wishes.timeout, 30.0),
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def look(self) -> tuple[Server, Writer, list[str]]:
        """The server, who writes prompts for it, and notes for the report. Raises BenchError."""
        model = self._wishes.model or await self._first_model()
        notes = []
        for extras in _EXTRAS:
            server = Server(self.base_url, model, self._wishes.api_key, self._wishes.chat, extras)
            answer = await self._ask(server, prose(_PROBES[0], random.Random(0)))
            if answer.status_code not in _REFUSED:
                break
        self._check(answer)
        if "ignore_eos" not in server.extras:
            notes.append("The server takes no ignore_eos: answers may end before their length.")
        writer, more = await self._writer(server)
        return server, writer, notes + more

    async def _first_model(self) -> str:
        answer = await self._get("/models")
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise BenchError(f"{self.base_url}/models is not there; name the model with --model")
        self._check(answer)
        models = answer.json().get("data") or ()
        if not models:
            raise BenchError(f"{self.base_url}/models names no model; name one with --model")
        return str(models[0]["id"])

    async def _writer(self, server: Server) -> tuple[Writer, list[str]]:
        rng = random.Random(0)
        texts = [prose(words, rng) for words in _PROBES]
        counted = [await self._prompt_tokens(server, text) for text in texts]
        known = [(text, n) for text, n in zip(texts, counted) if n is not None]
        path = self._wishes.tokenizer
        if path is not None:
            exact = ByTokenizer(tokenizer_of(path))
            own = sorted(n - exact.count(text) for text, n in known)
            base = max(0, own[len(own) // 2]) if own else 0
            return ByTokenizer(exact.tokenizer, base), []
        if len(known) < 2:
            note = "The server counts no prompts: their lengths are guessed, 1.3 tokens a word."
            return ByRatio(_USUAL), [note]
        return ByRatio(Line.fit([(len(text.split()), n) for text, n in known])), []

    async def _prompt_tokens(self, server: Server, text: str) -> int | None:
        answer = await self._ask(server, text)
        self._check(answer)
        usage = answer.json().get("usage") or {}
        tokens = usage.get("prompt_tokens")
        return None if tokens is None else int(tokens)

    async def _ask(self, server: Server, text: str) -> httpx.Response:
        fields = server.fields(text, 1) | server.more(1) | {"stream": False}
        fields.pop("stream_options", None)
        try:
            return await self._client.post(server.base_url + server.path, json=fields)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    async def _get(self, path: str) -> httpx.Response:
        try:
            return await self._client.get(self.base_url + path)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> BenchError:
        words = str(error) or type(error).__name__
        return BenchError(f"{self.base_url} does not answer: {words}")

    def _check(self, answer: httpx.Response) -> None:
        if answer.status_code >= 400:
            said = " ".join(answer.text.split())[:300]
            raise BenchError(f"{answer.request.url} answers {answer.status_code}: {said}")


def tokenizer_of(path: Path) -> Tokenizer:
    """From a tokenizer.json, a folder that holds one, or a GGUF file. Raises BenchError; for a GGUF
    file without the extra `engine` ModuleNotFoundError."""
    if path.suffix == ".gguf":
        from surgetank.engine.model.errors import ModelError
        from surgetank.engine.model.gguf_file import GgufFile

        try:
            return Tokenizer.from_str(GgufFile(path).tokenizer().tokenizer_json)
        except ModelError as error:
            raise BenchError(str(error)) from error
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise BenchError(f"tokenizer {file}: {error}") from error
