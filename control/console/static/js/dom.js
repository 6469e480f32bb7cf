// Writing into the page: only what changed, and only ever as text.

export const at = (id) => document.getElementById(id);

export function put(node, text) {
  const value = text ?? "";
  if (node.textContent !== value) node.textContent = value;
}

export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export function mark(node, name, value) {
  if (value === null || value === undefined || value === false) delete node.dataset[name];
  else if (node.dataset[name] !== String(value)) node.dataset[name] = value;
}

// A fixed number of children that are filled anew: nothing moves when their content does.
export function pool(parent, count, build) {
  const nodes = Array.from({ length: count }, build);
  parent.replaceChildren(...nodes.map((node) => node.root ?? node));
  return nodes;
}
