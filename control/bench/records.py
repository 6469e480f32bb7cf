"""Step records of an imaginary engine, for what is measured without one."""

from surgetank.telemetry.steprecord import StepRecord

T0, PER_PROMPT_TOKEN, PER_SEQUENCE = 0.008, 0.4e-3, 0.4e-3  # seconds, as a small model on a CPU


def step_record(step: int, prefill: int, decode: int, slots: int = 32) -> StepRecord:
    """A step that read `prefill` prompt tokens while `decode` sequences grew."""
    context = decode * (100 + step % 60)
    forward = T0 + PER_PROMPT_TOKEN * prefill + PER_SEQUENCE * decode + 1e-7 * context
    return StepRecord(
        step=step,
        at=0.05 * step,
        drain=20e-6,
        schedule=100e-6,
        forward=forward,
        sample=500e-6,
        emit=50e-6,
        idle=0.0,
        prefill_tokens=prefill,
        decode_tokens=decode,
        prefill_seqs=1 if prefill else 0,
        decode_seqs=decode,
        token_budget=512,
        slots_filled=decode,
        slots_no_work=0,
        slots_blocked_kv=0,
        slots_blocked_token_budget=slots - decode,
        slots_blocked_limit=0,
        slots_blocked_other=0,
        waiting=(0, 3, 0, 0),
        running=(0, decode, 0, 0),
        contended=True,
        kv_used=decode * 9,
        kv_cached=100,
        kv_free=800,
        kv_stored_tokens=context,
        kv_resident_tokens=context,
        prefix_hit_tokens=0,
        prefix_miss_tokens=prefill,
        prefill_backlog=512,
        kv_held=(0, decode * 9, 0, 0),
    )
