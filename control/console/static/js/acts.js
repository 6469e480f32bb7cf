// What an operator may do, each as: its words, its fields, its call, and before and after in words.

import { call } from "./api.js";
import { span } from "./format.js";
import { valueOf } from "./limits.js";

const CLASSES = ["critical", "default", "batch", "sheddable"];
const onOff = (value) => (value ? "draining" : "taking requests");
const engine = (fields) => `backends/${encodeURIComponent(fields.engine)}`;
const lowest = (value) => `${CLASSES[value]} and above`;

// `fields` are the form's values; `line` the chosen limit's line of the frame.
export const ACTS = {
  limit: {
    title: "Set a limit", fields: ["name", "value", "ttl"], forcible: true,
    about: "An override wins over configuration and policies until its time is over.",
    send: (fields, line, extra) => call("PUT", `limits/${line.name}`, { value: Number(fields.value), ttl: Number(fields.ttl), force: fields.force, ...extra }),
    words: (value, line) => valueOf(value, line.unit),
  },
  clear: {
    title: "Clear an override", fields: ["name"],
    about: "What configuration and policies want holds again at once.",
    send: (fields, line, extra) => call("DELETE", `limits/${line.name}`, extra),
    words: (value, line) => valueOf(value, line.unit),
  },
  shed: {
    title: "Shed low classes", fields: ["below", "ttl"], limit: "lowest_class", forcible: true,
    about: "Requests of the classes below are refused at the door, with a time to come back.",
    send: (fields, line, extra) => call("PUT", "limits/lowest_class", { value: Number(fields.below), ttl: Number(fields.ttl), force: fields.force, ...extra }),
    words: lowest,
  },
  drain: {
    title: "Drain", fields: ["ttl"], endless: true, subject: () => "",
    about: "New requests are refused; those in flight complete.",
    send: (fields, line, extra) => call("POST", "drain", { ttl: fields.ttl ? Number(fields.ttl) : null, ...extra }),
    words: onOff,
  },
  undrain: {
    title: "End the drain", fields: [], subject: () => "",
    about: "New requests are taken again.",
    send: (fields, line, extra) => call("POST", "undrain", extra),
    words: onOff,
  },
  drain_engine: {
    title: "Drain an engine", fields: ["engine", "ttl"], endless: true, forcible: true,
    about: "It gets no new requests; those that it has complete. The others take what comes.",
    send: (fields, line, extra) => call("POST", `${engine(fields)}/drain`, { ttl: fields.ttl ? Number(fields.ttl) : null, force: fields.force, ...extra }),
    subject: (fields) => `${fields.engine}: `,
    words: onOff,
  },
  undrain_engine: {
    title: "End an engine's drain", fields: ["engine"],
    about: "It gets requests again.",
    send: (fields, line, extra) => call("POST", `${engine(fields)}/undrain`, extra),
    subject: (fields) => `${fields.engine}: `,
    words: onOff,
  },
};

export const until = (ttl) => (ttl ? `for ${span(Number(ttl))}` : "");
