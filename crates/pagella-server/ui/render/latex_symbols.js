// The words of the LaTeX subset: commands that stand for one character, and what kind it is.

const names = (text) => Object.fromEntries(text.trim().split(/\s+/).map((pair) => pair.split('=')));

/** Letters and other identifiers. */
export const LATEX_LETTERS = names(`
alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ nu=ν
xi=ξ pi=π varpi=ϖ rho=ρ varrho=ϱ sigma=σ varsigma=ς tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω
Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω
infty=∞ partial=∂ nabla=∇ hbar=ℏ ell=ℓ Re=ℜ Im=ℑ aleph=ℵ emptyset=∅ varnothing=∅ ldots=… dots=… cdots=⋯ vdots=⋮ ddots=⋱
angle=∠ triangle=△ square=□ prime=′ degree=° imath=ı jmath=ȷ top=⊤ bot=⊥ checkmark=✓`);

/** Relations and binary operators. */
export const LATEX_OPERATORS = names(`
times=× cdot=⋅ div=÷ pm=± mp=∓ ast=∗ star=⋆ circ=∘ bullet=∙ oplus=⊕ ominus=⊖ otimes=⊗ odot=⊙
leq=≤ le=≤ geq=≥ ge=≥ neq=≠ ne=≠ approx=≈ equiv=≡ sim=∼ simeq=≃ cong=≅ propto=∝ ll=≪ gg=≫ prec=≺ succ=≻ doteq=≐
in=∈ notin=∉ ni=∋ subset=⊂ supset=⊃ subseteq=⊆ supseteq=⊇ cup=∪ cap=∩ setminus=∖ land=∧ wedge=∧ lor=∨ vee=∨ lnot=¬ neg=¬
forall=∀ exists=∃ nexists=∄ therefore=∴ because=∵ mid=∣ parallel=∥ perp=⊥ vdash=⊢ models=⊨ colon=: vert=| Vert=‖
to=→ rightarrow=→ leftarrow=← leftrightarrow=↔ Rightarrow=⇒ Leftarrow=⇐ Leftrightarrow=⇔ implies=⟹ iff=⟺ mapsto=↦
longrightarrow=⟶ longleftarrow=⟵ uparrow=↑ downarrow=↓ hookrightarrow=↪ rightharpoonup=⇀ rightleftharpoons=⇌
langle=⟨ rangle=⟩ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ lbrace={ rbrace=} lbrack=[ rbrack=] backslash=\\ lvert=| rvert=| lVert=‖ rVert=‖`);

/** Operators whose limits stand above and below in display style. */
export const LATEX_BIG = names(`
sum=∑ prod=∏ coprod=∐ int=∫ iint=∬ iiint=∭ oint=∮ bigcup=⋃ bigcap=⋂ bigoplus=⨁ bigotimes=⨂ bigvee=⋁ bigwedge=⋀`);

/** Named functions, set upright. */
export const LATEX_FUNCTIONS = new Set('sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp lim limsup liminf max min sup inf det dim ker gcd deg arg hom Pr argmax argmin'.split(' '));

/** Functions whose limits stand below. */
export const LATEX_LIMIT_FUNCTIONS = new Set('lim limsup liminf max min sup inf det gcd Pr argmax argmin'.split(' '));

export const LATEX_ACCENTS = names('hat=^ widehat=^ tilde=~ widetilde=~ bar=¯ vec=→ dot=˙ ddot=¨ check=ˇ breve=˘ overrightarrow=→');

export const LATEX_SPACES = { ',': '0.167em', ':': '0.222em', '>': '0.222em', ';': '0.278em', ' ': '0.333em', '!': '-0.167em', quad: '1em', qquad: '2em' };

/** Alphabets: MathML variants that must be written as characters, since browsers dropped `mathvariant`. */
export const LATEX_ALPHABETS = {
  mathbb: { A: 0x1d538, a: 0x1d552, 0: 0x1d7d8, exceptions: { C: 'ℂ', H: 'ℍ', N: 'ℕ', P: 'ℙ', Q: 'ℚ', R: 'ℝ', Z: 'ℤ' } },
  mathcal: { A: 0x1d49c, a: 0x1d4b6, exceptions: { B: 'ℬ', E: 'ℰ', F: 'ℱ', H: 'ℋ', I: 'ℐ', L: 'ℒ', M: 'ℳ', R: 'ℛ', e: 'ℯ', g: 'ℊ', o: 'ℴ' } },
  mathfrak: { A: 0x1d504, a: 0x1d51e, exceptions: { C: 'ℭ', H: 'ℌ', I: 'ℑ', R: 'ℜ', Z: 'ℨ' } },
  mathbf: { A: 0x1d400, a: 0x1d41a, 0: 0x1d7ce, exceptions: {} },
  mathsf: { A: 0x1d5a0, a: 0x1d5ba, 0: 0x1d7e2, exceptions: {} },
  mathtt: { A: 0x1d670, a: 0x1d68a, 0: 0x1d7f6, exceptions: {} },
};
