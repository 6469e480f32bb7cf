// What an operator may do, each as: its words, its fields, its call, and before and after in words.

import { call } from "./api.js";
import { span } from "./format.js";
import { valueOf } from "./limits.js";

const CLASSES = ["critical", "default", "batch", "sheddable"];
const onOff = (value) => (value ? "draining" : "taking requests");
const lowest = (value) => `${CLASSES[value]} and above`;

// `fields` are the form's values; `line` the chosen limit's line of the frame.
export const ACTS = {
  limit: {
    title: "Set a limit", fields: ["name", "value", "ttl"],
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
    title: "Shed low classes", fields: ["below", "ttl"], limit: "lowest_class",
    about: "Requests of the classes below are refused at the door, with a time to come back.",
    send: (fields, line, extra) => call("PUT", "limits/lowest_class", { value: Number(fields.below), ttl: Number(fields.ttl), force: fields.force, ...extra }),
    words: lowest,
  },
  drain: {
    title: "Drain", fields: ["ttl"], endless: true,
    about: "New requests are refused; those in flight complete.",
    send: (fields, line, extra) => call("POST", "drain", { ttl: fields.ttl ? Number(fields.ttl) : null, ...extra }),
    words: onOff,
  },
  undrain: {
    title: "End the drain", fields: [],
    about: "New requests are taken again.",
    send: (fields, line, extra) => call("POST", "undrain", extra),
    words: onOff,
  },
};

export const until = (ttl) => (ttl ? `for ${span(Number(ttl))}` : "");
