//! Compiles a template into a program that cannot escape its limits.
//!
//! MiniJinja counts steps but not the size of what a step builds, so its compiled instructions are
//! rewritten: whatever joins, multiplies, nests or emits goes through a guard that pays from the
//! budget, and every loop turn and macro return looks at the clock. The interface used for this is
//! unstable, which is why the version is pinned.

use minijinja::machinery::{CodeGenerator, Instruction, Instructions, Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Error, ErrorKind};

use super::budget::EXPRESSION_TOKENS_MAX;

/// Names of the guards; no template can spell them.
pub(super) const GUARD_CONCAT: &str = "\0concat";
pub(super) const GUARD_ADD: &str = "\0add";
pub(super) const GUARD_MUL: &str = "\0mul";
pub(super) const GUARD_NEST: &str = "\0nest";
pub(super) const GUARD_TICK: &str = "\0tick";
pub(super) const GUARD_EQ: &str = "\0eq";
pub(super) const GUARD_NE: &str = "\0ne";
pub(super) const GUARD_IN: &str = "\0in";
/// A variable that is 1, put into products so that none is computed while compiling.
pub(super) const ONE: &str = "__one";

/// Hugging Face renders with these white-space rules.
fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
}

/// Rewrites the source before compiling: products are kept for run time, and the tags
/// `{% generation %}` and `{% endgeneration %}`, which only matter for training, become plain blocks.
pub(super) fn prepare(source: &str, bytes_max: usize) -> Result<String, Error> {
    let too_large = |what| Err(Error::new(ErrorKind::SyntaxError, what));
    if source.len() > bytes_max {
        return too_large(format!("the source exceeds {bytes_max} bytes"));
    }
    let mut out = String::with_capacity(source.len() + 64);
    let mut copied = 0;
    let mut tokens = 0;
    let mut after_block_start = false;
    let mut after_operand = false;
    for token in tokenize(source, false, syntax()?) {
        let (token, span) = token?;
        let range = span.start_offset as usize..span.end_offset as usize;
        let replacement = match &token {
            // Elsewhere a star unpacks arguments.
            Token::Mul if after_operand => Some(format!("* {ONE} *")),
            Token::Ident("generation") if after_block_start => Some("if true".to_owned()),
            Token::Ident("endgeneration") if after_block_start => Some("endif".to_owned()),
            _ => None,
        };
        after_block_start = matches!(token, Token::BlockStart);
        after_operand = matches!(
            token,
            Token::Ident(_)
                | Token::Str(_)
                | Token::String(_)
                | Token::Int(_)
                | Token::Int128(_)
                | Token::Float(_)
                | Token::BracketClose
                | Token::ParenClose
                | Token::BraceClose
        );
        tokens = match token {
            Token::BlockStart | Token::VariableStart | Token::TemplateData(_) => 0,
            _ => tokens + 1,
        };
        if tokens > EXPRESSION_TOKENS_MAX {
            return too_large(format!("an expression exceeds {EXPRESSION_TOKENS_MAX} tokens"));
        }
        if let (Some(text), Some(before)) = (replacement, source.get(copied..range.start)) {
            out.push_str(before);
            out.push_str(&text);
            copied = range.end;
        }
    }
    out.push_str(source.get(copied..).unwrap_or_default());
    Ok(out)
}

/// Compiles prepared source.
pub(super) fn compile<'s>(name: &'s str, source: &'s str) -> Result<Instructions<'s>, Error> {
    let tree = parse(source, name, syntax()?)?;
    let mut generator = CodeGenerator::new(name, source);
    generator.compile_stmt(&tree);
    let (instructions, blocks) = generator.finish();
    if !blocks.is_empty() {
        return Err(unsupported("block"));
    }
    rewrite(name, source, &instructions)
}

fn unsupported(tag: &str) -> Error {
    Error::new(ErrorKind::SyntaxError, format!("{tag:?} is not allowed in a chat template"))
}

/// Replaces each instruction by a guarded group and moves jump targets along.
fn rewrite<'s>(
    name: &'s str,
    source: &'s str,
    old: &Instructions<'s>,
) -> Result<Instructions<'s>, Error> {
    let mut groups = Vec::new();
    let mut starts = Vec::new();
    let mut len = 0u32;
    while let Some(instruction) = old.get(starts.len() as u32) {
        let group = guard(instruction)?;
        starts.push(len);
        len += group.len() as u32;
        groups.push(group);
    }
    starts.push(len);
    let mut new = Instructions::new(name, source);
    for (i, group) in groups.into_iter().enumerate() {
        for mut instruction in group {
            match &mut instruction {
                Instruction::Iterate(target)
                | Instruction::Jump(target)
                | Instruction::JumpIfFalse(target)
                | Instruction::JumpIfFalseOrPop(target)
                | Instruction::JumpIfTrueOrPop(target)
                | Instruction::BuildMacro(_, target, _) => {
                    let moved = starts.get(*target as usize);
                    *target = *moved.ok_or_else(|| unsupported("this jump"))?;
                }
                _ => {}
            }
            match (old.get_span(i as u32), old.get_line(i as u32)) {
                (Some(span), _) => new.add_with_span(instruction, span),
                (None, Some(line)) => new.add_with_line(instruction, line as u16),
                (None, None) => new.add(instruction),
            };
        }
    }
    Ok(new)
}

/// The instructions that take the place of one.
fn guard<'s>(instruction: &Instruction<'s>) -> Result<Vec<Instruction<'s>>, Error> {
    use Instruction as I;
    let call = |name, args| I::CallFunction(name, Some(args));
    Ok(match instruction {
        // Raw text goes through the formatter, which pays for it, inside captures too.
        I::EmitRaw(text) => vec![I::LoadConst(Value::from(*text)), I::Emit],
        I::StringConcat => vec![call(GUARD_CONCAT, 2)],
        I::Add => vec![call(GUARD_ADD, 2)],
        I::Mul => vec![call(GUARD_MUL, 2)],
        I::BuildMap(_) | I::BuildList(_) | I::BuildTuple(_) => {
            vec![instruction.clone(), call(GUARD_NEST, 1)]
        }
        I::SetAttr(_) => vec![I::Swap, call(GUARD_NEST, 1), I::Swap, instruction.clone()],
        // Comparing large values takes long, and code without loops has no other clock.
        I::Eq => vec![call(GUARD_EQ, 2), call(GUARD_TICK, 0), I::DiscardTop],
        I::Ne => vec![call(GUARD_NE, 2), call(GUARD_TICK, 0), I::DiscardTop],
        I::In => vec![call(GUARD_IN, 2), call(GUARD_TICK, 0), I::DiscardTop],
        I::Lt | I::Lte | I::Gt | I::Gte | I::CompareAndPreserve(_) | I::Slice | I::Iterate(_) => {
            vec![instruction.clone(), call(GUARD_TICK, 0), I::DiscardTop]
        }
        I::Return => vec![call(GUARD_TICK, 0), I::DiscardTop, I::Return],
        I::LoadBlocks => return Err(unsupported("extends")),
        I::Include(_) => return Err(unsupported("include")),
        I::ExportLocals => return Err(unsupported("import")),
        I::CallBlock(_) | I::FastSuper => return Err(unsupported("block")),
        other => vec![other.clone()],
    })
}
