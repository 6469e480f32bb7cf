// The admin API: JSON in, JSON out, its own sentence when it says no.

import { session } from "./session.js";

const ROOT = new URL("../", document.baseURI);

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function headers() {
  return session.token ? { authorization: `Bearer ${session.token}` } : {};
}

export async function call(method, path, body) {
  let answer;
  try {
    answer = await fetch(new URL(path, ROOT), {
      method,
      headers: { ...headers(), "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  } catch (lost) {
    throw new Refused(0, "unreachable", `the sidecar does not answer (${lost.message})`);
  }
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

export async function refusal(answer) {
  const said = await answer.json().catch(() => ({}));
  const { code = "failed", message = `HTTP ${answer.status}` } = said.error ?? {};
  return new Refused(answer.status, code, message);
}
