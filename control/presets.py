"""Settings for the usual ways of using a model: targets, classes and limits, each with its why."""

from dataclasses import dataclass

from surgetank.control.config import Config
from surgetank.control.reference import leaves
from surgetank.control.sources import Given

PREAMBLE = """# Presets

Generated from the code by `surgetank docs presets`; a test keeps it current.

`surgetank run --preset NAME` starts with these settings instead of the defaults. A configuration
file, the environment, `--set` and flags still win over them. A wait that the gate allows is
kappa x the target of the class, and stays below 10 s in each of them: that is as far ahead as a
refused client can be told to come back."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One setting, and why it is not the default."""

    key: str
    value: float
    why: str


@dataclass(frozen=True, slots=True)
class Preset:
    """What it is for, and what it chooses."""

    title: str
    purpose: str
    choices: tuple[Choice, ...]

    def given(self, name: str) -> list[Given]:
        """The settings as a source of configuration, the weakest above the defaults."""
        return [Given(each.key, each.value, f"preset {name}") for each in self.choices]


def _pace(tpot: float, why: str) -> tuple[Choice, Choice]:
    """The gate's promise and the engine's step budget are one number."""
    return (
        Choice("slo.tpot", tpot, why),
        Choice("engine.tpot_target", tpot, "The engine cuts its steps to the same promise."),
    )


PRESETS: dict[str, Preset] = {
    "chat": Preset(
        "Realtime chat",
        "A person watches the answer appear. The first words must come before they doubt, the "
        "rest faster than they read.",
        (
            Choice("slo.ttft", 0.8, "Past about a second people believe that nothing happens."),
            *_pace(0.08, "12 tokens a second: some nine words, twice as fast as reading."),
            Choice(
                "gate.laws.patience_batch", 8.0, "Summaries of chats can wait 4.5 s behind them."
            ),
            Choice(
                "gate.laws.patience_sheddable", 8.0, "So can suggestions, before they go first."
            ),
            Choice(
                "gate.queue_requests", 128, "More would be waited for longer than anybody stays."
            ),
            Choice("gate.queue_wait", 10.0, "Who has seen nothing for 10 s has left or reloaded."),
            Choice(
                "gate.max_output_tokens", 2048, "Nobody reads more at once; a runaway answer ends."
            ),
            Choice("gate.max_n", 4, "A chat shows one answer, rarely some to choose from."),
        ),
    ),
    "batch": Preset(
        "Batch summarisation",
        "Nobody watches: documents per hour count. Steps may be long and full; the client holds "
        "the backlog and sends as fast as it is let in.",
        (
            Choice("slo.ttft", 16.0, "Only a hung job should count as late."),
            Choice("gate.kappa", 0.6, "Waits end below 10 s."),
            *_pace(0.5, "Large batches make each token slow and all of them cheap."),
            Choice(
                "gate.laws.patience_batch", 1.0, "All of it is batch: no class is more patient."
            ),
            Choice("gate.laws.patience_sheddable", 1.0, "The same, and it still is shed first."),
            Choice("gate.laws.floor_share", 0.1, "Jobs of a lower class must end some day, too."),
            Choice(
                "gate.queue_requests", 2048, "A deep queue keeps the batch full between bursts."
            ),
            Choice(
                "gate.queue_tokens", 1_048_576, "Documents are long; 512 tokens for each of them."
            ),
            Choice(
                "gate.queue_wait", 60.0, "A job may wait for a minute before its client asks again."
            ),
            Choice(
                "gate.retry_share", 0.2, "Its retries are work that has to be done, and can wait."
            ),
            Choice(
                "engine.max_num_seqs", 64, "Throughput grows with the batch until steps get long."
            ),
            Choice("engine.max_batch_tokens", 2048, "Long prompts are read in few, large steps."),
        ),
    ),
    "code": Preset(
        "Code generation",
        "Completions while somebody types: long prompts, short answers, and stale in a moment.",
        (
            Choice("slo.ttft", 0.5, "A suggestion later than the next keystrokes is noise."),
            *_pace(0.05, "20 tokens a second: a line of code in half a second."),
            Choice("gate.kappa", 0.5, "Prompts are files: half of the target is for reading them."),
            Choice("gate.laws.patience_batch", 6.0, "Whole-file edits run in the background."),
            Choice("gate.laws.patience_sheddable", 6.0, "Speculative completions can wait, or go."),
            Choice(
                "gate.queue_requests", 64, "What waits behind 64 others is not wanted any more."
            ),
            Choice(
                "gate.queue_tokens", 262_144, "4,096 prompt tokens for each of those that wait."
            ),
            Choice(
                "gate.queue_wait", 3.0, "By then the text has changed, and the request with it."
            ),
            Choice("gate.max_output_tokens", 1024, "A completion is a function, not a program."),
            Choice("gate.max_n", 8, "Editors ask for several variants at once."),
            Choice(
                "gate.retry_share", 0.05, "The next keystroke asks anew: retries are worth little."
            ),
        ),
    ),
    "translate": Preset(
        "Translation",
        "Paragraph in, paragraph out: the output's length follows the input's, and many short "
        "requests of one document come together.",
        (
            Choice("slo.ttft", 2.0, "A page is looked at when it is whole, not word by word."),
            *_pace(0.15, "A paragraph of 60 tokens in 9 s, beside many others."),
            Choice("gate.laws.patience_batch", 7.0, "Catalogues are translated overnight."),
            Choice("gate.laws.patience_sheddable", 7.0, "Previews can wait, or go."),
            Choice(
                "gate.laws.output_quantile", 0.9, "Lengths are predictable: promise memory fully."
            ),
            Choice("gate.queue_requests", 512, "One document arrives as hundreds of paragraphs."),
            Choice("gate.queue_wait", 20.0, "Ten times the target; the reader has gone by then."),
            Choice(
                "gate.max_output_tokens", 4096, "No paragraph is longer; a loop in the text is."
            ),
        ),
    ),
    "long-context": Preset(
        "Long context",
        "Contracts, code bases, meetings: few requests, each with tens of thousands of tokens. "
        "Reading takes seconds and KV memory is what is short.",
        (
            Choice("slo.ttft", 12.0, "Reading the prompt alone takes most of it."),
            *_pace(0.15, "Attention over a long context makes each token slower."),
            Choice(
                "gate.laws.patience_batch", 1.15, "12 s are patience already: waits end below 10 s."
            ),
            Choice("gate.laws.patience_sheddable", 1.15, "The same."),
            Choice("gate.queue_requests", 32, "Each of them is worth hundreds of short requests."),
            Choice("gate.queue_tokens", 2_097_152, "Which are 65,536 tokens each, for 32 of them."),
            Choice("gate.queue_wait", 45.0, "A few prompts ahead take that long to be read."),
            Choice(
                "gate.kv_reserve",
                0.85,
                "Answers grow on top of contexts that cannot be put back cheaply.",
            ),
            Choice(
                "gate.kv_reserve_low", 0.6, "One low-class context must not keep a high one out."
            ),
            Choice("gate.max_n", 2, "Each choice holds its own part of the pool."),
            Choice(
                "engine.max_num_seqs", 16, "The pool holds few contexts; more slots only preempt."
            ),
            Choice("engine.max_batch_tokens", 1024, "Prompts are read in larger pieces."),
            Choice(
                "engine.prefill_share", 0.75, "And yet those that decode get their part of a step."
            ),
        ),
    ),
}


def markdown() -> str:
    """The page about all of them."""
    defaults = {key: field.default for key, field in leaves(Config)}
    parts = [PREAMBLE]
    for name, preset in PRESETS.items():
        parts.append(f"\n## {name}: {preset.title}\n\n{preset.purpose}\n")
        parts.append("| setting | value | default | why |\n|---|---|---|---|")
        parts += [
            f"| `{each.key}` | `{each.value}` | `{defaults[each.key]}` | {each.why} |"
            for each in preset.choices
        ]
    return "\n".join(parts) + "\n"
