// Builds DOM nodes. The only door through which the page makes elements: text always arrives as text
// nodes, and attributes that could run code or carry style are refused, so no string can become markup.

const SVG_NAMESPACE = 'http://www.w3.org/2000/svg';
const MATH_NAMESPACE = 'http://www.w3.org/1998/Math/MathML';

/** Set as properties, because their attribute is only the initial value or has other words. */
const AS_PROPERTY = new Set(['value', 'checked', 'disabled', 'hidden', 'selected', 'open', 'indeterminate', 'tabIndex', 'readOnly', 'multiple', 'required', 'htmlFor']);

/**
 * `el('button.quiet', {type: 'button', on: {click}}, 'Send')`.
 * `props`: `on` maps events to listeners, `data` sets data attributes, `vars` sets custom properties
 * (through the CSS object model, which the content-security policy allows); the rest are attributes.
 * Children: nodes, strings, numbers, arrays of these; null, undefined and false are skipped.
 */
export function el(tag, props, ...children) {
  const [name, ...classes] = tag.split('.');
  const node = document.createElement(name);
  if (classes.length) node.className = classes.join(' ');
  applyProps(node, props);
  appendAll(node, children);
  return node;
}

export function svgEl(name, attributes, ...children) {
  return namespacedElement(SVG_NAMESPACE, name, attributes, children);
}

export function mathEl(name, attributes, ...children) {
  return namespacedElement(MATH_NAMESPACE, name, attributes, children);
}

function namespacedElement(namespace, name, attributes, children) {
  const node = document.createElementNS(namespace, name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, String(value));
  }
  appendAll(node, children);
  return node;
}

function applyProps(node, props) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null) continue;
    if (key === 'on') {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (key === 'data') {
      for (const [name, text] of Object.entries(value)) node.dataset[name] = text;
    } else if (key === 'vars') {
      for (const [name, text] of Object.entries(value)) node.style.setProperty(name, text);
    } else if (key === 'class') {
      for (const name of String(value).split(' ')) if (name) node.classList.add(name);
    } else if (AS_PROPERTY.has(key)) {
      node[key] = value;
    } else if (value !== false) {
      if (/^on/i.test(key) || /^(style|srcdoc)$/i.test(key)) throw new Error(`attribute ${key} is not allowed`);
      node.setAttribute(key, value === true ? '' : String(value));
    }
  }
}

/** Appends children as `el` does. */
export function appendAll(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) appendAll(node, child);
    else node.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces everything inside `node`. */
export function fill(node, ...children) {
  node.replaceChildren();
  appendAll(node, children);
  return node;
}

/** Sets or removes an attribute without touching it when nothing changes (screen readers re-announce). */
export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else {
    const text = value === true ? '' : String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

/** Sets text only when it differs, so that selections in unchanged text survive. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
