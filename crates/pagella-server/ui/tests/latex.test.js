// The LaTeX subset: trees of known formulas, and refusal of everything else.

import test from 'node:test';
import assert from 'node:assert/strict';
import { parseLatex } from '../render/latex.js';

function short(node) {
  if (typeof node === 'string') return node;
  const [tag, , children] = node;
  const inner = children.map(short).join(['mi', 'mn', 'mo', 'mtext'].includes(tag) ? '' : ' ');
  return ['mi', 'mn', 'mo'].includes(tag) ? inner : `${tag.replace(/^m/, '')}(${inner})`;
}

const FORMULAS = [
  ['x', 'ath(x)'],
  ['x^2+y_1', 'ath(row(sup(x 2) + sub(y 1)))'],
  ['\\frac{a}{b}', 'ath(frac(a b))'],
  ['\\sqrt[3]{x+1}', 'ath(root(row(x + 1) 3))'],
  ['\\sum_{i=1}^{n} i', 'ath(row(underover(∑ row(i = 1) n) i))'],
  ['\\int_0^\\infty e^{-x}\\,dx', 'ath(row(subsup(∫ 0 ∞) sup(e row(− x)) space() d x))'],
  ['\\left( \\frac12 \\right)', 'ath(row(( frac(1 2) )))'],
  ['\\mathbb{R}^n', 'ath(sup(ℝ n))'],
  ["f'(x)", 'ath(row(sup(f ′) ( x )))'],
  ['\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}', 'ath(row(( table(tr(td(a) td(b)) tr(td(c) td(d))) )))'],
  ['\\text{if } x \\geq 0', 'ath(row(text(if ) x ≥ 0))'],
  ['\\hat{y} = \\vec v', 'ath(row(over(y ^) = over(v →)))'],
  ['3.14 \\times 10^{-5}', 'ath(row(3.14 × sup(10 row(− 5))))'],
  ['\\lim_{x \\to 0} \\sin x', 'ath(row(under(lim row(x → 0)) space() space() sin space() x))'],
];

test('known formulas', () => {
  for (const [source, expected] of FORMULAS) {
    const tree = parseLatex(source);
    assert.ok(tree, source);
    assert.equal(short(tree), expected, source);
  }
});

test('what is not known is refused, not guessed', () => {
  for (const source of ['\\unknown{x}', '\\frac{a}', '{', 'a}', '\\begin{foo}\\end{foo}', '\\begin{matrix} a', '\\left( x', '\\href{javascript:x}{y}', '#', '\\', '_', '\\not x', '\\mathbb{é}', '\\constructor', '\\__proto__', '\\toString']) {
    assert.equal(parseLatex(source), null, source);
  }
});

test('deep and long input is refused', () => {
  assert.equal(parseLatex('{'.repeat(4000)), null);
  assert.equal(parseLatex('\\sqrt'.repeat(900)), null);
  assert.equal(parseLatex('x'.repeat(6000)), null);
});

test('only MathML elements and inert attributes come out', () => {
  const allowed = new Set(['math', 'mrow', 'mi', 'mn', 'mo', 'mtext', 'mspace', 'mfrac', 'msqrt', 'mroot', 'msub', 'msup', 'msubsup', 'munder', 'mover', 'munderover', 'mtable', 'mtr', 'mtd']);
  const visit = (node) => {
    if (typeof node === 'string') return;
    assert.ok(allowed.has(node[0]), node[0]);
    for (const name of Object.keys(node[1])) assert.ok(!/^(on|href|src|style)/i.test(name), name);
    node[2].forEach(visit);
  };
  for (const [source] of FORMULAS) visit(parseLatex(source));
});
