//! Tests over whole constraints, on a tokenizer made here and on that of the demo model.

mod compose;
mod free;
mod healing;
mod refused;
#[path = "../../../tests/support/schemas.rs"]
mod schemas;
mod state;
mod walks;

use std::path::Path;
use std::sync::OnceLock;

use pagella_text::Tokenizer;

use self::schemas::Rng;
use super::{
    Bitmask, Constraint, ConstraintError, ConstraintFactory, ConstraintLimits, ConstraintSpec,
    enforceable,
};

/// Pieces of the small tokenizer beyond the single bytes, as text.
const PIECES: [&str; 26] = [
    "{\"", "\": ", "\", \"", "\"}", " \"", "[", ", ", "]}", "true", "null", "12", "007", "ab",
    "abc", "story", "time", "s", "to", "ry", "cab", "END", "€", "ye", "s no", "call:1", "l:",
];

/// All single bytes, some longer tokens, two tokens that end a reply, and another special one.
fn byte_tokenizer() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| {
        let mut pieces: Vec<String> = (0..=255u8).map(|byte| alphabet(&[byte])).collect();
        let longer = PIECES.iter().map(|piece| alphabet(piece.as_bytes()));
        let longer: Vec<String> = longer.filter(|piece| !pieces.contains(piece)).collect();
        pieces.extend(longer);
        let first_special = pieces.len();
        let specials = ["<|end|>", "<|eot|>", "<|call|>"];
        pieces.extend(specials.map(String::from));
        let vocab: Vec<String> =
            pieces.iter().enumerate().map(|(id, piece)| format!("{piece:?}: {id}")).collect();
        let added: Vec<String> = specials
            .iter()
            .zip(first_special..)
            .map(|(s, id)| format!(r#"{{"id": {id}, "content": "{s}", "special": true}}"#))
            .collect();
        let level = r#"{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
            "use_regex": false}"#;
        let json = format!(
            r#"{{"model": {{"type": "BPE", "vocab": {{{}}}, "merges": []}},
                "pre_tokenizer": {level}, "decoder": {level}, "added_tokens": [{}]}}"#,
            vocab.join(", "),
            added.join(", ")
        );
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tokenizer.json"), json).unwrap();
        let ends = format!(r#"{{"eos_token_id": [{first_special}, {}]}}"#, first_special + 1);
        std::fs::write(dir.path().join("generation_config.json"), ends).unwrap();
        let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
        assert_eq!(tokenizer.eos_ids().len(), 2);
        tokenizer
    })
}

/// How a byte-level vocabulary writes bytes: printable ones as themselves, others from U+0100 on.
fn alphabet(bytes: &[u8]) -> String {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let write = |byte: u8| match printable(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|b| !printable(*b)).count();
            char::from_u32(256 + before as u32).unwrap()
        }
    };
    bytes.iter().map(|byte| write(*byte)).collect()
}

fn demo_tokenizer() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| {
        // The tests of this crate run in its directory; the variable is of compile time.
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
        Tokenizer::from_dir(&dir).unwrap()
    })
}

/// Ids of the model beyond those of the tokenizer, as padded vocabularies have them.
const PADDING: usize = 13;

fn factory_of(tokenizer: &Tokenizer) -> ConstraintFactory {
    let vocab = tokenizer.vocab_size() + PADDING;
    ConstraintFactory::new(tokenizer, vocab, ConstraintLimits::default()).unwrap()
}

fn byte_factory() -> &'static ConstraintFactory {
    static FACTORY: OnceLock<ConstraintFactory> = OnceLock::new();
    FACTORY.get_or_init(|| factory_of(byte_tokenizer()))
}

fn demo_factory() -> &'static ConstraintFactory {
    static FACTORY: OnceLock<ConstraintFactory> = OnceLock::new();
    FACTORY.get_or_init(|| factory_of(demo_tokenizer()))
}

fn new_mask(tokenizer: &Tokenizer) -> Bitmask {
    Bitmask::new_none(tokenizer.vocab_size() + PADDING)
}

/// The id of exactly these bytes.
fn id_of(tokenizer: &Tokenizer, text: &str) -> u32 {
    let ids = tokenizer.ids_that_begin(text.as_bytes());
    *ids.iter().rfind(|id| tokenizer.token_bytes(**id) == text.as_bytes()).unwrap()
}

/// Steps after which a walk looks for an end.
const EAGER_STEPS: usize = 60;

/// Takes allowed ids at random until the output ends; the text and the ids. Checks on the way that
/// ids which end the output are allowed exactly if it can end, and no special id otherwise.
fn walk(
    tokenizer: &Tokenizer,
    constraint: &mut dyn Constraint,
    rng: &mut Rng,
) -> (Vec<u8>, Vec<u32>) {
    let mut mask = new_mask(tokenizer);
    let (mut text, mut ids) = (Vec::new(), Vec::new());
    for step in 0..2000 {
        let verdict = constraint.mask(&mut mask).unwrap();
        for id in tokenizer.special_ids() {
            let is_end = tokenizer.eos_ids().contains(&id);
            assert_eq!(mask.contains(id), is_end && verdict.can_end, "special id {id}");
        }
        let allowed: Vec<u32> = mask.ids().collect();
        assert!(!allowed.is_empty(), "dead end after {:?}", String::from_utf8_lossy(&text));
        check_forced(tokenizer, constraint, &verdict.forced);
        if verdict.can_end && (constraint.is_completed() || step > EAGER_STEPS) {
            return (text, ids);
        }
        assert!(!constraint.is_completed());
        let closing = ["\"", "]", "}", ","].map(|text| id_of(tokenizer, text));
        let eager = closing.into_iter().find(|id| step > EAGER_STEPS && mask.contains(*id));
        let id = eager.unwrap_or_else(|| *rng.pick(&allowed));
        constraint.accept(id).unwrap();
        ids.push(id);
        if tokenizer.eos_ids().contains(&id) {
            assert!(constraint.is_completed());
            return (text, ids);
        }
        text.extend_from_slice(tokenizer.token_bytes(id));
    }
    panic!("no end: {}", String::from_utf8_lossy(&text));
}

/// Forced ids can be accepted one after the other, and no byte of theirs has an alternative.
fn check_forced(tokenizer: &Tokenizer, constraint: &dyn Constraint, forced: &[u32]) {
    if forced.is_empty() {
        return;
    }
    let mut fork = constraint.fork();
    for id in forced {
        for other in 0..=0x7f {
            let first = tokenizer.token_bytes(*id)[0];
            let viable = fork.viable(&[other]).unwrap() == 1;
            assert_eq!(viable, other == first, "byte {other} beside {first}");
        }
        fork.accept(*id).unwrap();
    }
}

fn compile(factory: &ConstraintFactory, spec: ConstraintSpec) -> Box<dyn Constraint> {
    factory.compile(&spec).unwrap()
}

fn refusal(spec: &ConstraintSpec) -> ConstraintError {
    match byte_factory().compile(spec) {
        Ok(_) => panic!("{spec:?} was not refused"),
        Err(error) => error,
    }
}
