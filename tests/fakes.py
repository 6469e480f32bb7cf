"""Test doubles shared by the whole suite; the product has none."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from surgetank.admission.api import Ask, Delta, End, Headers, Listener, TextModel
from surgetank.admission.outcome import Refusal, Refused
from surgetank.admission.routing.side import SideState
from surgetank.admission.snapshot import EngineLook
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard, TokenLogprob
from surgetank.engine.backends.remote.config import Role
from surgetank.engine.backends.remote.found import Found, Vitals
from surgetank.engine.text.codec import TextCodec
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import FinishReason, Outcome, Reason

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_tokenizer(merges: Sequence[tuple[str, str]] = (("h", "e"), ("l", "l"))) -> Tokenizer:
    """A byte-level BPE of 256 bytes, a few merges and three special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *("".join(pair) for pair in merges)]
    bpe = models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=list(merges))
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in special])
    return tokenizer


def tiny_card(**changes: object) -> ModelCard:
    """The card of an imaginary model that speaks through tiny_tokenizer()."""
    tokenizer = tiny_tokenizer()
    end = tokenizer.get_vocab()["<|im_end|>"]
    card = ModelCard(
        name="tiny",
        context_length=2048,
        vocab_size=tokenizer.get_vocab_size(),
        eos_token_ids=(end,),
        tokenizer=tokenizer.to_str(),
        chat_template=CHATML,
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        add_bos=False,
        architecture="llama",
        parameters=1_000,
        dtype="float32",
        device="cpu",
        kv_block_size=16,
        kv_blocks=512,
        kv_bytes_per_token=64,
        max_num_seqs=8,
        max_batch_tokens=256,
        engine_version="test",
        pid=1,
    )
    return msgspec.structs.replace(card, **changes)


def end_ticket(ticket: Ticket, outcome: Outcome, reason: Reason) -> None:
    """A ticket ends once: a second end is the caller's bug."""
    if ticket.outcome is not None:
        raise RuntimeError(f"ticket {ticket.id} ended twice: {ticket.outcome}, {outcome}")
    ticket.outcome, ticket.reason = outcome, reason


class FakeCall:
    """One submitted request whose tokens the test (or FakeDesk's script) hands out."""

    def __init__(self, ticket: Ticket, served: TextModel, ask: Ask, listener: Listener) -> None:
        self.ticket = ticket
        self.served = served
        self.ask = ask
        self.listener = listener
        self.cancelled: tuple[Outcome, Reason] | None = None
        self.ended: End | None = None
        self._texts = [
            served.codec.detokenizer(ask.stop, ask.sampling.min_tokens) for _ in range(ask.n)
        ]
        self._tokens = 0
        self.held = False

    def emit(self, ids: Sequence[int], index: int = 0, finish: FinishReason | None = None) -> None:
        """New tokens of one choice, each with log-probability -0.5 when it was asked for."""
        text = self._texts[index].feed(ids)
        if self._texts[index].stopped:
            finish = FinishReason.STOP
        if finish is not None:
            text += self._texts[index].flush()
        wanted = self.ask.sampling.logprobs
        logprobs = None
        if wanted is not None:
            logprobs = [TokenLogprob(-0.5, [(i, -0.5 - k) for k in range(wanted)]) for i in ids]
        self._tokens += len(ids)
        matched = self._texts[index].matched
        self.listener.on_delta(Delta(index, text, list(ids), logprobs, finish, matched))

    def end(self, refusal: Refusal | None = None, cached_tokens: int = 0) -> None:
        """The request's one end: ok, or as the refusal says."""
        if self.ended is None:
            outcome = Outcome.OK if refusal is None else refusal.outcome
            end_ticket(self.ticket, outcome, Reason.NONE if refusal is None else refusal.reason)
            prompt_tokens = len(self.ask.prompt)
            self.ended = End(outcome, refusal, prompt_tokens, self._tokens, cached_tokens)
            self.listener.on_end(self.ended)

    def stopped(self, index: int) -> bool:
        """Whether a stop string ended this choice."""
        return self._texts[index].stopped

    def hold(self, held: bool) -> None:
        self.held = held

    def cancel(
        self, outcome: Outcome = Outcome.CANCELLED, reason: Reason = Reason.CLIENT_GONE
    ) -> None:
        if self.ended is None:
            self.cancelled = (outcome, reason)
            self.end(Refusal(outcome, reason, f"ended: {reason}"))


class FakeDesk:
    """A desk without a gate: plays a script of token ids for every choice, or waits for the test.

    `script` None: the test drives `calls[-1]` itself. Else each event-loop turn hands out one
    token per choice, up to max_tokens (finish `length`) or the script's end (finish `stop`).
    """

    def __init__(
        self, served: TextModel | None = None, script: Sequence[int] | None = None
    ) -> None:
        card = tiny_card()
        self.served = served or TextModel(card.name, card, TextCodec(card))
        self.script = script
        self.tickets: list[Ticket] = []
        self.headers: list[Headers] = []
        self.refused: list[tuple[Ticket, Refusal]] = []
        self.calls: list[FakeCall] = []
        self.refuse_submit: Refusal | None = None  # what submit() answers instead of serving
        self.refuse_find: Refusal | None = None  # what find() answers instead of a model
        self.bar: Refusal | None = None  # why nobody may ask
        self.peers: list[str] = []
        self.hint: float | None = None  # what refuse() fills in as retry_after
        self.is_ready = True
        self.on_event: Callable[[], None] = lambda: None  # after every call of ours and every end

    def arrive(self, door: str, headers: Headers, peer: str = "") -> Ticket:
        named = dict(headers).get("x-request-id")
        ticket = Ticket(id=named or f"request-{len(self.tickets)}", arrived=0.0, door=door)
        ticket.barred = self.bar
        self.peers.append(peer)
        self.tickets.append(ticket)
        self.headers.append(headers)
        self.on_event()
        return ticket

    def barred(self, headers: Headers, peer: str) -> Refusal | None:
        return self.bar

    def find(self, model: str) -> TextModel:
        if self.refuse_find is not None:
            raise Refused(self.refuse_find)
        if model not in self.names():
            message = f"model {model!r} is not served; allowed: {', '.join(self.names())}"
            raise Refused(Refusal(Outcome.NOT_FOUND, Reason.UNKNOWN_MODEL, message, param="model"))
        return self.served

    def names(self) -> list[str]:
        return [self.served.name, "default"]

    def refuse(self, ticket: Ticket, refusal: Refusal) -> Refusal:
        end_ticket(ticket, refusal.outcome, refusal.reason)
        refusal = msgspec.structs.replace(refusal, retry_after=self.hint)
        self.refused.append((ticket, refusal))
        self.on_event()
        return refusal

    def submit(self, ticket: Ticket, served: TextModel, ask: Ask, listener: Listener) -> FakeCall:
        if ticket.outcome is not None:
            raise RuntimeError(f"ticket {ticket.id} was submitted after its end")
        if self.refuse_submit is not None:
            end_ticket(ticket, self.refuse_submit.outcome, self.refuse_submit.reason)
            raise Refused(self.refuse_submit)
        call = FakeCall(ticket, served, ask, listener)
        self.calls.append(call)
        if self.script is not None:
            asyncio.get_running_loop().call_soon(self._play, call, 0)
        self.on_event()
        return call

    def ready(self) -> bool:
        return self.is_ready

    def _play(self, call: FakeCall, step: int) -> None:
        script = self.script or ()
        last = min(len(script), call.ask.sampling.max_tokens) - 1
        for index in range(call.ask.n):
            if call.ended is None and not call.stopped(index):
                at_end = step == last
                whole = len(script) <= call.ask.sampling.max_tokens
                finish = FinishReason.STOP if whole else FinishReason.LENGTH
                call.emit(script[step : step + 1], index, finish if at_end else None)
        if call.ended is not None:
            return
        if step >= last or all(call.stopped(index) for index in range(call.ask.n)):
            call.end()
            self.on_event()
        else:
            asyncio.get_running_loop().call_soon(self._play, call, step + 1)


def step_record(**changes: object) -> StepRecord:
    """A decode step of one sequence out of four slots; 20 ms, most of them in the forward pass."""
    values: dict[str, object] = {
        "step": 1,
        "at": 100.0,
        "drain": 0.001,
        "schedule": 0.001,
        "forward": 0.015,
        "sample": 0.002,
        "emit": 0.001,
        "idle": 0.0,
        "prefill_tokens": 0,
        "decode_tokens": 1,
        "prefill_seqs": 0,
        "decode_seqs": 1,
        "token_budget": 64,
        "slots_filled": 1,
        "slots_no_work": 3,
        "slots_blocked_kv": 0,
        "slots_blocked_token_budget": 0,
        "slots_blocked_limit": 0,
        "slots_blocked_other": 0,
        "waiting": (0, 0, 0, 0),
        "running": (0, 1, 0, 0),
        "contended": False,
        "kv_used": 4,
        "kv_cached": 2,
        "kv_free": 58,
        "kv_stored_tokens": 50,
        "kv_resident_tokens": 50,
        "prefix_hit_tokens": 0,
        "prefix_miss_tokens": 0,
        "prefill_backlog": 0,
        **changes,
    }
    return StepRecord(**values)  # type: ignore[arg-type]


def engine_look(name: str = "gpu-1", **changes: object) -> EngineLook:
    """A vLLM with four slots that is up for 100 s, and of which nothing is learned yet."""
    card = tiny_card(name="m", max_num_seqs=4, kv_blocks=0, pid=0, device="")
    url = f"http://{name}:8000"
    values: dict[str, object] = {
        "name": name,
        "url": url,
        "role": Role.BOTH,
        "state": SideState.UP,
        "since": -100.0,
        "back_at": None,
        "card": card,
        "vitals": Vitals("vllm", url, Found("vllm", "0.32.0", card, ("m",))),
        "last_step": None,
        "stalled_for": 0.0,
        "dispatched": 0,
        "dispatched_seqs": 0,
        "slots": 4.0,
        "learned_slots": None,
        "unread": 0,
        "others": 0,
        "kv_blocks": 0,
        "kv_promised": None,
        "kv_used": None,
        "drain": None,
        "model": None,
        "model_error": 0.0,
        "wait": None,
        "largest_batch": None,
        "faults": 0,
        "ejections": 0,
        "restarts": 0,
        "routed": {},
        "moved_away": 0,
        **changes,
    }
    return EngineLook(**values)  # type: ignore[arg-type]
