//! The grammar engine, llguidance: its view of the vocabulary, and compiling within limits.
//!
//! It is given the model's ids that stand for text, followed by one id for every byte and one id
//! that ends the output. The byte ids let a parser be moved by bytes that no token has; they are cut
//! off masks. Special ids are marked there: a grammar can ask for them only by their numbers.
//!
//! Compiling runs on a thread of its own: it recurses on the input, which needs a known stack, and
//! it can be left behind when it takes too long. The engine's own limits then end it soon after.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId,
};
use llguidance::{Matcher, ParserFactory};

use super::ConstraintError;
use super::error::short_reason;
use super::spec::ConstraintLimits;
use super::vocab::Vocab;

/// Stack of a compiling thread: [`ConstraintLimits::nesting_max`] levels need a fraction of it.
const STACK_BYTES: usize = 64 << 20;

/// Tokens longer than this are not offered; the trie cannot hold tokens much longer.
const TOKEN_BYTES_MAX: usize = 1000;

/// Marks special tokens inside the grammar engine; no byte of any text in UTF-8.
const MARKER: u8 = 0xff;

/// The parser's id for one byte, when the model has `vocab` ids.
pub(super) fn byte_id(vocab: usize, byte: u8) -> TokenId {
    // `Compiler::new` has checked that these ids exist.
    vocab as TokenId + TokenId::from(byte)
}

/// Whether a message of the grammar engine says that a limit was reached.
pub(super) fn limit_reached(reason: &str) -> bool {
    const SIGNS: [&str; 9] = [
        "fuel",
        "too big",
        "too large",
        "too many",
        "Too many",
        "too deeply",
        "TooComplex",
        "level exceeded",
        "size limit",
    ];
    SIGNS.iter().any(|sign| reason.contains(sign))
}

/// Why a grammar was not compiled, before it is known what it was made from.
pub(super) enum Refusal {
    /// The text is not acceptable.
    Invalid(String),
    /// Nothing satisfies it.
    Impossible(String),
    /// As it is.
    Error(ConstraintError),
}

/// Compiles grammars for one vocabulary.
pub(super) struct Compiler {
    factory: Arc<ParserFactory>,
    compile_time: Duration,
}

impl Compiler {
    pub fn new(vocab: &Vocab, limits: &ConstraintLimits) -> Result<Self, ConstraintError> {
        let bad = |reason: String| ConstraintError::Vocabulary { reason };
        if vocab.size() > 1 << 22 {
            return Err(bad(format!("{} ids are more than 4 million", vocab.size())));
        }
        // Building the trie asserts its own limits.
        let build = AssertUnwindSafe(|| parser_factory(vocab, limits));
        match catch_unwind(build) {
            Ok(Ok(factory)) => {
                Ok(Self { factory: Arc::new(factory), compile_time: limits.compile_time })
            }
            Ok(Err(reason)) => Err(bad(short_reason(&reason))),
            Err(_) => Err(bad("its tokens do not form a trie".into())),
        }
    }

    /// A parser at the start of `grammar`; `has_specials` where it names special tokens.
    pub fn compile(
        &self,
        grammar: TopLevelGrammar,
        has_specials: bool,
        what: &'static str,
    ) -> Result<Matcher, Refusal> {
        let factory = self.factory.clone();
        let (sender, receiver) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("constraint".into()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || {
            // Nobody listens any more if the time is over.
            let _ = sender.send(compile_here(&factory, grammar, has_specials, what));
        });
        let stopped =
            |reason: &str| Refusal::Error(ConstraintError::Internal { reason: reason.into() });
        spawned.map_err(|error| {
            Refusal::Error(ConstraintError::Thread { reason: error.to_string() })
        })?;
        match receiver.recv_timeout(self.compile_time) {
            Ok(outcome) => outcome,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                Err(Refusal::Error(ConstraintError::CompileTime {
                    what,
                    budget: self.compile_time,
                }))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(stopped("compiling stopped")),
        }
    }
}

fn parser_factory(vocab: &Vocab, limits: &ConstraintLimits) -> Result<ParserFactory, String> {
    let offered = |id| {
        let bytes = vocab.text_of(id)?;
        (bytes.len() <= TOKEN_BYTES_MAX && !bytes.contains(&MARKER)).then(|| bytes.to_vec())
    };
    let tokenizer = vocab.tokenizer();
    let special = |id| {
        let name = tokenizer.piece(id).filter(|_| tokenizer.is_special(id) && !vocab.is_end(id))?;
        Some([&[MARKER], name.as_bytes()].concat())
    };
    let word = |id| offered(id).or_else(|| special(id)).unwrap_or_default();
    let mut words: Vec<Vec<u8>> = (0..vocab.size() as TokenId).map(word).collect();
    words.extend((0..MARKER).map(|byte| vec![byte]));
    // The marker's own id, and the id that ends the output.
    words.extend([Vec::new(), Vec::new()]);
    let size = words.len() as TokenId;
    let trie = TokTrie::from(&TokRxInfo::new(size, size - 1), &words);
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let slices = SlicedBiasComputer::general_slices();
    let capabilities = InferenceCapabilities::default();
    let mut factory =
        ParserFactory::new(&env, capabilities, &slices).map_err(|error| error.to_string())?;
    factory.quiet();
    *factory.limits_mut() = ParserLimits {
        initial_lexer_fuel: limits.compile_fuel,
        step_lexer_fuel: limits.mask_fuel,
        step_max_items: limits.mask_items_max,
        max_lexer_states: limits.states_max,
        max_grammar_size: limits.grammar_symbols_max,
        verbose_errors: false,
        ..ParserLimits::default()
    };
    Ok(factory)
}

fn compile_here(
    factory: &ParserFactory,
    grammar: TopLevelGrammar,
    has_specials: bool,
    what: &'static str,
) -> Result<Matcher, Refusal> {
    let refuse = |message: String| {
        let reason = short_reason(&message);
        if reason.contains("Unsatisfiable") {
            return Refusal::Impossible(reason);
        }
        if limit_reached(&reason) {
            return Refusal::Error(ConstraintError::TooComplex { what, reason });
        }
        if reason.starts_with("panic:") {
            return Refusal::Invalid(format!("it makes the grammar engine fail ({reason})"));
        }
        Refusal::Invalid(reason)
    };
    // `{:#}` names the causes too.
    let parser = factory.create_parser(grammar).map_err(|error| refuse(format!("{error:#}")))?;
    let mut matcher = Matcher::new(Ok(parser));
    if let Some(message) = matcher.get_error() {
        return Err(refuse(message));
    }
    // Text that is forced without end exhausts the limits here, which the mask then reports. Special
    // tokens are forced under names that no token has: after that no mask has anything in it.
    if !has_specials {
        let _ = matcher.compute_ff_bytes();
    }
    // Every byte has an id, so an empty first mask means that no text begins correctly.
    match matcher.compute_mask() {
        Ok(_) => Ok(matcher),
        Err(error) if error.to_string().contains("NoExtension") => {
            Err(Refusal::Impossible("no text begins as it asks".into()))
        }
        Err(error) => Err(refuse(error.to_string())),
    }
}
