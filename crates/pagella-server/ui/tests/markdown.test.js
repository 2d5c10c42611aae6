// Markdown: golden trees, growth in random pieces, hostile text in bounded time.

import test from 'node:test';
import assert from 'node:assert/strict';
import { GrowingBlocks, parseMarkdown } from '../render/block.js';
import { parseInline, plainText } from '../render/inline.js';

/** A tree as a short string: what the goldens compare. */
function short(node) {
  if (Array.isArray(node)) return node.map(short).join('');
  switch (node.t) {
    case 'text': return node.v.replace(/\n/g, '⏎');
    case 'code': return node.text === undefined ? `\`${node.v}\`` : `<pre ${node.lang}${node.closed ? '' : ' open'}>${node.text}</pre>`;
    case 'math': return node.closed === false ? `<p>${node.v}</p>` : `$${node.display ? '$' : ''}${node.v}$${node.after ? `<p>${node.after}</p>` : ''}`;
    case 'break': return '<br>';
    case 'link': return `<a ${node.href}>${short(node.c)}</a>`;
    case 'image': return `<img ${node.alt} ${node.src}>`;
    case 'footref': return `<ref ${node.v}>`;
    case 'em': case 'strong': case 'del': return `<${node.t}>${short(node.c)}</${node.t}>`;
    case 'p': return `<p>${short(parseInline(node.s))}</p>`;
    case 'heading': return `<h${node.level}>${short(parseInline(node.s))}</h>`;
    case 'rule': return '<hr>';
    case 'quote': return `<q>${short(node.c)}</q>`;
    case 'footnote': return `<note ${node.label}>${short(node.c)}</note>`;
    case 'table': return `<table ${node.align.map((a) => a || '-').join(',')}>${[node.head, ...node.rows].map((row) => row.join('|')).join(';')}</table>`;
    case 'list': return `<${node.ordered ? `ol ${node.start}` : 'ul'}${node.tight ? '' : ' loose'}>${node.items.map((i) => `<li${i.task === null ? '' : i.task ? ' x' : ' _'}>${short(i.c)}</li>`).join('')}</list>`;
    default: throw new Error(`unknown node ${node.t}`);
  }
}

const INLINE = [
  ['plain', 'plain'],
  ['*a* **b** ***c*** ~~d~~', '<em>a</em> <strong>b</strong> <em><strong>c</strong></em> <del>d</del>'],
  ['snake_case_name and _em_', 'snake_case_name and <em>em</em>'],
  ['2 * 3 * 4', '2 * 3 * 4'],
  ['**open', '**open'],
  ['**a *b* c**', '<strong>a <em>b</em> c</strong>'],
  ['*a **b** c*', '<em>a <strong>b</strong> c</em>'],
  ['`` a`b `` and `c`', '`a`b` and `c`'],
  ['`open', '`open'],
  ['[a *b*](http://x.y "t")', '<a http://x.y>a <em>b</em></a>'],
  ['[a](javascript:alert(1))', '<a javascript:alert(1)>a</a>'],
  ['![alt](data:image/png;base64,AA)', '<img alt data:image/png;base64,AA>'],
  ['[not a link] (x)', '[not a link] (x)'],
  ['see https://a.b/c(d). Next', 'see <a https://a.b/c(d)>https://a.b/c(d)</a>. Next'],
  ['<https://a.b> <b>bold</b>', '<a https://a.b>https://a.b</a> <b>bold</b>'],
  ['a  \nb\nc\\\nd', 'a<br>b⏎c<br>d'],
  ['\\*not\\* &lt;tag&gt; &#65; &unknown;', '*not* <tag> A &unknown;'],
  ['costs $5 and $10', 'costs $5 and $10'],
  ['mass $m c^2$ here', 'mass $m c^2$ here'],
  ['\\(a+b\\) and \\[c\\]', '$a+b$ and $$c$'],
  ['note[^1] end', 'note<ref 1> end'],
  ['[a [b](http://c) d](http://e)', '[a <a http://c>b</a> d](<a http://e>http://e</a>)'],
];

test('inline goldens', () => {
  for (const [source, expected] of INLINE) assert.equal(short(parseInline(source)), expected, source);
});

const BLOCKS = [
  ['# A\n## B ##\ntext\n===', '<h1>A</h><h2>B</h><h1>text</h>'],
  ['a\nb\n\nc', '<p>a⏎b</p><p>c</p>'],
  ['- a\n- b\n  - c\n- [x] d\n- [ ] e', '<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li></list></li><li x><p>d</p></li><li _><p>e</p></li></list>'],
  ['3. a\n4. b', '<ol 3><li><p>a</p></li><li><p>b</p></li></list>'],
  ['- a\n\n- b', '<ul loose><li><p>a</p></li><li><p>b</p></li></list>'],
  ['1. a\n\n   ```js\n   x\n   ```\n2. b', '<ol 1 loose><li><p>a</p><pre js>x</pre></li><li><p>b</p></li></list>'],
  ['- a\nlazy\n\nafter', '<ul><li><p>a⏎lazy</p></li></list><p>after</p>'],
  ['> a\n> > b\n\nc', '<q><p>a</p><q><p>b</p></q></q><p>c</p>'],
  ['```py\na = "<b>"\n```\nb', '<pre py>a = "<b>"</pre><p>b</p>'],
  ['```\nopen', '<pre  open>open</pre>'],
  ['````md\n```\ninner\n```\n````', '<pre md>```\ninner\n```</pre>'],
  ['| a | b |\n|:--|--:|\n| 1 | `x|y` |\n| 2 |', '<table start,end>a|b;1|`x|y`;2|</table>'],
  ['text\na|b\n-|-\n1|2', '<p>text</p><table -,->a|b;1|2</table>'],
  ['***\n- - -\n___', '<hr><hr><hr>'],
  ['$$\nx^2\n$$', '$x^2$'],
  ['\\[ a + b \\]\nnext', '$a + b$<p>next</p>'],
  ['$$ never closed\n\ntext', '<p>$$ never closed</p><p>text</p>'],
  ['[^n]: words\n  more', '<note n><p>words⏎more</p></note>'],
  ['    code\n\n    more\ntext', '<pre >code\n\nmore</pre><p>text</p>'],
  ['<script>alert(1)</script>', '<p><script>alert(1)</script></p>'],
  ['* a\n**b**', '<ul><li><p>a⏎<strong>b</strong></p></li></list>'],
  ['- a\n***\n- b', '<ul><li><p>a</p></li></list><hr><ul><li><p>b</p></li></list>'],
];

test('block goldens', () => {
  for (const [source, expected] of BLOCKS) assert.equal(short(parseMarkdown(source)), expected, source);
});

/** A small deterministic generator: failures can be repeated. */
function seeded(seed) {
  let state = seed >>> 0;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 4294967296) * n);
  };
}

test('a text that grows in random pieces parses as the whole does', () => {
  const pieces = [...BLOCKS.map(([s]) => s), ...INLINE.map(([s]) => s), '\n', '\n\n', '- ', '  ', '*', '| ', '`', '```\n', '> ', '1. ', '\t', '\r\n', '--', '|-|-|\n', '$$', 'word ', '[^1]: '];
  for (let seed = 1; seed <= 3000; seed++) {
    const random = seeded(seed);
    let text = '';
    for (let i = 0; i < 12; i++) text += pieces[random(pieces.length)] + (random(2) ? '\n' : '');
    const growing = new GrowingBlocks();
    for (let at = 0; at < text.length; ) {
      at = Math.min(text.length, at + 1 + random(9));
      growing.set(text.slice(0, at));
    }
    assert.equal(short(growing.blocks), short(parseMarkdown(text)), `seed ${seed}: ${JSON.stringify(text)}`);
  }
});

test('closed blocks are not parsed again', () => {
  const growing = new GrowingBlocks();
  growing.set('one\n\ntwo\n\nthree\n\nfour\nfive\n');
  assert.equal(growing.set('one\n\ntwo\n\nthree\n\nfour\nfive\nsix'), 3);
  assert.equal(growing.set('changed'), 0);
});

/** Milliseconds of this process, so that a busy machine does not matter; the best of three. */
function cost(work) {
  const once = () => {
    const before = process.cpuUsage();
    work();
    return process.cpuUsage(before).user / 1000;
  };
  return Math.min(once(), once(), once());
}

test('hostile repetitions take time in proportion to their length', () => {
  const shapes = ['*', '**a', '_a_', '[', '[a](', '![', '`', '`a``', '<', '> ', '- ', '1. ', '|', '$', '\\(', '\\[', '~~a', '&#', 'https://', '[^', '\n> ', '\n- ', '$$\n', '*a **b '];
  for (const shape of shapes) {
    const parse = (length) => cost(() => {
      for (const block of parseMarkdown(shape.repeat(length / shape.length))) if (block.s !== undefined) parseInline(block.s);
    });
    const [short, long] = [parse(20000), parse(160000)];
    // Eight times the text: a square would cost 64 times as much. Below 10 ms nothing can be told.
    assert.ok(long < 24 * Math.max(short, 10), `${JSON.stringify(shape)}: ${short} ms, then ${long} ms`);
  }
});

test('no text is lost between marks', () => {
  assert.equal(plainText(parseInline('a *b* `c` [d](e) ![f](g)')), 'a b c d f');
});
