"""Stand-ins for engine and sidecar, run as scripts by the supervisor's tests.

fake_processes.py engine FOLDER serve|mistake|crash|stubborn
fake_processes.py sidecar FOLDER serve|mistake|slow|hung
fake_processes.py supervise FOLDER ENGINE_MODE|none SIDECAR_MODE
"""

import asyncio
import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def note(folder: Path, text: str) -> None:
    """Append to what the test reads afterwards."""
    with (folder / "log").open("a") as file:
        file.write(text + "\n")


def wait_for_sigterm() -> None:
    signal.sigwait({signal.SIGTERM})


def engine(folder: Path, mode: str) -> int:
    if mode == "mistake":
        sys.stderr.write("surgetank engine: no model at /nowhere\n")
        return 2
    (folder / "engine.pid").write_text(str(os.getpid()))
    if mode == "crash":
        sys.stderr.write("out of luck\n")
        return 7
    if mode == "stubborn":
        threading.Event().wait()
    note(folder, "engine up")
    wait_for_sigterm()
    note(folder, "engine down")
    return 0


def engine_runs(folder: Path) -> bool:
    try:
        os.kill(int((folder / "engine.pid").read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def sidecar(folder: Path, mode: str) -> int:
    if mode == "mistake":
        sys.stderr.write("surgetank sidecar: 127.0.0.1:8400: the port is in use\n")
        return 2

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            up = engine_runs(folder)
            body = json.dumps({"state": "ready" if up else "backend_down"}).encode()
            hung = mode == "hung" and self.path == "/health/live"
            if hung:
                note(folder, "asked whether it lives")
            unready = self.path == "/health/ready" and not up
            self.send_response(503 if hung or unready else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    listeners = {"http": url, "admin": url, "grpc": "none"}
    sys.stdout.write(json.dumps({"listeners": listeners}) + "\n")
    sys.stdout.flush()
    if mode == "slow":
        wait_for_sigterm()
        note(folder, "sidecar drains")
    wait_for_sigterm()
    note(folder, "sidecar down")
    return 0


def supervise(folder: Path, engine_mode: str, sidecar_mode: str) -> int:
    from surgetank.control.panel import JsonPanel
    from surgetank.control.supervisor import Plan, Supervisor
    from surgetank.telemetry.clock import SystemClock

    me = [sys.executable, __file__]
    plan = Plan(
        engine=None if engine_mode == "none" else [*me, "engine", str(folder), engine_mode],
        sidecar=[*me, "sidecar", str(folder), sidecar_mode],
        drain_within=30.0,
        engine_stop_within=0.3,
        backoff_first=0.01,
        backoff_most=0.05,
        poll=0.02,
    )

    async def run() -> int:
        return await Supervisor(plan, JsonPanel(sys.stdout, sys.stderr), SystemClock()).run()

    return asyncio.run(run())


if __name__ == "__main__":
    job, place, *modes = sys.argv[1:]
    if job == "supervise":
        sys.exit(supervise(Path(place), *modes))
    # Blocked, so that it waits for sigwait() and is never lost; threads inherit it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    sys.exit((engine if job == "engine" else sidecar)(Path(place), *modes))
