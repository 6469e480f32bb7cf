"""Finds out what stands at an address, and looks at it again and again."""

import math

import httpx

from surgetank.engine.api import ModelCard
from surgetank.engine.backends.remote.answers import MODELS, Answers, ask, ask_all, ask_or_none
from surgetank.engine.backends.remote.config import BackendConfig
from surgetank.engine.backends.remote.exposition import Sample, read_samples
from surgetank.engine.backends.remote.found import (
    Found,
    Look,
    NobodyListens,
    NotFound,
    Signals,
    Source,
)
from surgetank.engine.backends.remote.kinds import KINDS, Kind, Sizes
from surgetank.telemetry.clock import Clock

_BLOCK = 16  # tokens, where a pool's blocks are not known
_BEGAN = "process_start_time_seconds"  # as Prometheus' client libraries export it
_BY_NAME = {kind.name: kind for kind in KINDS}


class Discovery:
    """One address. Belongs to one event loop."""

    def __init__(self, config: BackendConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._client = httpx.AsyncClient(
            base_url=config.url,
            headers=dict(config.credentials),
            trust_env=False,
            verify=config.tls or True,
            event_hooks={"request": [self._address]},
        )

    async def _address(self, request: httpx.Request) -> None:
        """The name that the certificate must have, where it is another than the address's."""
        if self._config.server_name is not None:
            request.extensions["sni_hostname"] = self._config.server_name

    async def find(self) -> Found:
        """What is there. Raises NotFound."""
        return identify(await ask_all(self._client), self._config)

    async def look(self, found: Found) -> Look:
        """Its metrics, as far as it has any, and its models; no metrics while their page fails, for
        an engine may work without. Raises NotFound when it does not answer."""
        kind = _BY_NAME[found.kind]
        page = await ask_or_none(self._client, found.metrics) if found.metrics else None
        if page is not None:
            signals = read_signals(kind, page, self._clock.monotonic())
            listed = await self._list() if kind.alive == MODELS else None
            return Look(signals, listed, _began(page))
        text = await ask(self._client, kind.alive)
        if text is None:
            raise NotFound(f"{self._config.url}{kind.alive} is not answered with 200")
        return Look(Signals(), _names(text) if kind.alive == MODELS else None)

    async def _list(self) -> tuple[str, ...] | None:
        """The models of an engine that has answered; None: it is too busy to list them. Raises
        NobodyListens."""
        try:
            text = await ask(self._client, MODELS)
        except NobodyListens:
            raise
        except NotFound:
            return None
        return None if text is None else _names(text)

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()


def identify(answers: Answers, config: BackendConfig) -> Found:
    """The kind, and a card of its sizes. Raises NotFound when nothing marks an engine."""
    kind = next((kind for kind in KINDS if kind.marked(answers)), None)
    if kind is None or not answers.models:
        raise NotFound(f"{config.url}: it lists no models; is it an OpenAI server, and is it up?")
    names = _names(answers.pages[MODELS])
    sizes = kind.sizes(answers)
    seqs = config.max_num_seqs or sizes.max_num_seqs or kind.usual_seqs
    card = ModelCard(
        name=names[0],
        context_length=config.context_length or sizes.context_length,
        vocab_size=0,
        eos_token_ids=(),
        tokenizer="",
        chat_template="",
        bos_token="",
        eos_token="",
        add_bos=False,
        architecture="",
        parameters=0,
        dtype="",
        device="",
        kv_block_size=sizes.kv_block_size or _BLOCK,
        kv_blocks=sizes.kv_blocks,
        kv_bytes_per_token=0,
        max_num_seqs=seqs,
        max_batch_tokens=sizes.max_batch_tokens or 2048,
        engine_version=f"{kind.name} {sizes.version}".strip(),
        pid=0,
    )
    page = answers.pages.get(kind.metrics, "")
    told = read_signals(kind, page, 0.0)
    signals = tuple(name for name in kind.series if getattr(told, name) is not None)
    mute = (kind.mute,) if kind.mute and not signals else ()
    ignores = kind.ignores(sizes.version)
    deaf = tuple(f"its chats pass over {name}: send max_tokens" for name in ignores)
    return Found(
        kind=kind.name,
        version=sizes.version,
        card=card,
        models=names,
        signals=signals,
        notes=(*kind.notes, *mute, *deaf),
        metrics=kind.metrics if kind.series and page else "",
        slots=_source(config, sizes),
        ignores=ignores,
    )


def _names(listed: str) -> tuple[str, ...]:
    """Of the models in the text of that list. Not when each was created: vLLM says now, always."""
    return tuple(str(model["id"]) for model in Answers({MODELS: listed}).models)


def _began(page: str) -> float | None:
    """Where one process tells; of several behind one page none stands for all."""
    told = read_samples(page, (_BEGAN,)).get(_BEGAN, [])
    return told[0].value if len(told) == 1 else None


def _source(config: BackendConfig, sizes: Sizes) -> Source:
    if config.max_num_seqs:
        return Source.CONFIGURED
    return Source.TOLD if sizes.max_num_seqs else Source.GUESSED


def read_signals(kind: Kind, page: str, at: float) -> Signals:
    """The signals of one look at its metrics page; `at` in monotonic seconds."""
    samples = read_samples(page, [name for names in kind.series.values() for name in names])
    values: dict[str, float | None] = {}
    for signal, names in kind.series.items():
        found = next((samples[name] for name in names if name in samples), None)
        values[signal] = None if found is None else _together(found, kind, mean=signal == "kv_used")
    return Signals(at=at, **values)


def _together(samples: list[Sample], kind: Kind, *, mean: bool) -> float | None:
    """Data-parallel engines tell each their own: numbers add up, ratios are averaged. What ranks of
    one model-parallel group all tell counts once, and of a sum beside its parts only the sum."""
    whole = [each for each in samples if _is_total(each, kind)] or samples
    once: dict[tuple[tuple[str, str], ...], float] = {}
    for each in whole:
        own = {name: text for name, text in each.labels.items() if name not in kind.repeated}
        key = tuple(sorted(own.items()))
        if math.isfinite(each.value):
            once[key] = max(each.value, once.get(key, each.value))
    if not once:
        return None
    return sum(once.values()) / (len(once) if mean else 1)


def _is_total(sample: Sample, kind: Kind) -> bool:
    return all(sample.labels.get(name, text) == text for name, text in kind.total.items())
