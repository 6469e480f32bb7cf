"""Step times, where the step loop's time goes, and the engines behind the gate."""

from surgetank.dashboards.boards.engines import ENGINE, ENGINES
from surgetank.dashboards.objectives import TPOT_SECONDS
from surgetank.dashboards.panels import Board, Kind, Panel, Row, here, q, quantiles
from surgetank.dashboards.promql import ratio

_buckets = here.select("compute_step_seconds", "_bucket")


def _by_operator(whole: str) -> str:
    """Operator seconds for each of `whole`, both of one engine; absent where there is none."""
    seconds = here.rate("compute_operator_seconds_total", "instance", "operator")
    return f"({seconds}) / on (instance) group_left () (({here.rate(whole, 'instance')}) > 0)"


_STEPS = Row(
    "Steps",
    (
        Panel(
            title="Step time",
            means="One turn of the step loop without its idle time.",
            do="Above the line everyone in flight waits too long for a token: StepTimeSpike.",
            queries=tuple(quantiles("compute_step_seconds")),
            unit="s",
            bad=TPOT_SECONDS,
        ),
        Panel(
            title="Step time by kind (p99)",
            means="decode writes, prefill reads, mixed does both.",
            do="mixed far above decode: too many prompt tokens are put into one step.",
            queries=tuple(quantiles("compute_step_seconds", "kind", of=(0.99,))),
            unit="s",
            bad=TPOT_SECONDS,
        ),
        Panel(
            title="Step times, all of them",
            means="How many steps took how long. Two bands are two kinds of work.",
            do="A band that climbs: batches grow, or contexts do.",
            queries=(q(f"sum by (le) (increase({_buckets}[$__rate_interval]))", "{{le}}"),),
            unit="s",
            kind=Kind.HEATMAP,
        ),
        Panel(
            title="Steps per second",
            means="By what they worked on.",
            do="Zero with work in the engine: EngineStalled.",
            queries=(q(here.rate("batch_steps_total", "kind"), "{{kind}}"),),
            unit="ops",
            stacked=True,
        ),
    ),
)

_LOOP = Row(
    "Step loop",
    (
        Panel(
            title="Where the loop's time goes",
            means="Exclusive stages that sum to wall time; forward is the device.",
            do="idle with a queue: dispatch. admit, schedule or postprocess large: our own cost.",
            queries=(
                q(
                    here.rate("compute_loop_seconds_total", "instance", "stage"),
                    "{{stage}} {{instance}}",
                ),
            ),
            unit="percentunit",
            stacked=True,
        ),
        Panel(
            title="Share of busy time in the forward pass",
            means="What the device gets of the time in which there is work.",
            do="Below 85 %: the loop around the model is too slow.",
            queries=(
                q(
                    ratio(
                        here.rate("compute_loop_seconds_total", "instance", stage="forward"),
                        here.rate(
                            "compute_loop_seconds_total",
                            "instance",
                            stage=("admit", "schedule", "forward", "postprocess"),
                        ),
                    ),
                    "{{instance}}",
                ),
            ),
            unit="percentunit",
            lowest=0,
            highest=1,
        ),
    ),
)

_OPERATORS = Row(
    "Operators",
    (
        Panel(
            title="Where the device's time goes",
            means="Shares of forward pass and sampling, from the steps whose operators were timed.",
            do="attention grows with contexts, gemm with tokens; much `other` is overhead.",
            queries=(
                q(
                    _by_operator("compute_operator_seconds_total"),
                    "{{operator}} {{instance}}",
                ),
            ),
            unit="percentunit",
            stacked=True,
            lowest=0,
            highest=1,
        ),
        Panel(
            title="Time per sampled step",
            means="Seconds of a step by operator: its average over the sampled ones.",
            do="One that climbs alone says what got slower.",
            queries=(
                q(
                    _by_operator("compute_sampled_steps_total"),
                    "{{operator}} {{instance}}",
                ),
            ),
            unit="s",
            stacked=True,
        ),
        Panel(
            title="Operations per second",
            means="Two per weight and computed token; attention over the context is not in it.",
            do="Far below the device's peak with full slots: memory traffic or launches bind.",
            queries=(q(here.rate("compute_estimated_flops_total", "instance"), "{{instance}}"),),
            unit="flops",
            lowest=0,
        ),
        Panel(
            title="Bytes per second",
            means="The least that the steps moved: weights and context read, new keys written.",
            do="Near the memory's bandwidth: larger batches share the reading of weights.",
            queries=(
                q(
                    here.rate("compute_estimated_bytes_total", "instance", "direction"),
                    "{{direction}} {{instance}}",
                ),
            ),
            unit="binBps",
            lowest=0,
        ),
        Panel(
            title="The engine's step model",
            means="Seconds per step, prompt token, decoding sequence and context token, as fitted.",
            do="A term that climbs says what got dearer; absent until the engine has fitted it.",
            queries=(
                q(
                    here.gauge("max", "compute_step_model_seconds", "instance", "term"),
                    "{{term}} {{instance}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Error of the engine's step model",
            means="How far predicted step times are off, of late.",
            do="Above the line step budgets are guesses: see StepModelWrong.",
            queries=(
                q(here.gauge("max", "compute_step_model_error_ratio", "instance"), "{{instance}}"),
            ),
            unit="percentunit",
            lowest=0,
            bad=0.15,
        ),
    ),
)

_GPU = Row(
    "GPU",
    (
        Panel(
            title="How busy the GPU is",
            means="util: something runs. The others are counted by hardware where it can (Hopper).",
            do="util near 1 with sm_active low: launches bind. dram_active near 1: memory binds.",
            queries=(
                q(
                    here.gauge("max", "compute_gpu_ratio", "instance", "device", "signal"),
                    "{{signal}} {{device}} {{instance}}",
                ),
            ),
            unit="percentunit",
            lowest=0,
            highest=1,
        ),
        Panel(
            title="Throttled",
            means="Share of time in which the GPU's clocks were held down, by reason.",
            do="sw_power_cap is usual under full load. Heat and slowdown: the alert GpuThrottle.",
            queries=(
                q(
                    here.rate("compute_gpu_throttle_seconds_total", "instance", "device", "reason"),
                    "{{reason}} {{device}} {{instance}}",
                ),
            ),
            unit="percentunit",
            lowest=0,
            highest=1,
        ),
        Panel(
            title="GPU faults",
            means="XIDs that the GPU reported, and times that its driver had to be opened again.",
            do="Any: the alert GpuFault. The engine's log has their numbers.",
            queries=(
                q(here.rate("compute_xid_total", "instance", "device"), "{{device}} {{instance}}"),
                q(
                    here.rate("compute_gpu_driver_losses_total", "instance"),
                    "driver lost {{instance}}",
                ),
            ),
            unit="eps",
            bad=0.001,
        ),
        Panel(
            title="Driver",
            means="Whether the driver answers for the engine's GPU. Absent on a CPU.",
            do="lost: the alert GpuFault.",
            queries=(
                q(
                    here.gauge("min", "compute_gpu_up", "instance", "device"),
                    "{{device}} {{instance}}",
                ),
            ),
            unit="short",
            kind=Kind.STAT,
            texts=((0, "lost", "red"), (1, "answers", "green")),
        ),
    ),
)

COMPUTE = Board(
    "surgetank-compute",
    "Surgetank / Compute",
    "Step times, where the loop's time goes, whether engines live, and how they share the work.",
    (_STEPS, _LOOP, _OPERATORS, _GPU, ENGINE, ENGINES),
)
