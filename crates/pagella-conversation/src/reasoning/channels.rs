//! Answers in channels, as gpt-oss writes them (Harmony): messages of their own for reasoning, for
//! calls of tools and for the answer, each with a header that says which.

use std::sync::Arc;

use pagella_text::Tokenizer;

use crate::parts::Part;
use crate::tools::{CallSink, JsonWalk, Step, ToolSet};

/// The mark that a message begins with.
pub(crate) const START: &str = "<|start|>";
/// The marks between headers and texts. All are special tokens.
const MARKS: [&str; 7] =
    [START, "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"];

/// Whether a model with this template speaks in channels.
pub fn are_spoken(source: &str, tokenizer: &Tokenizer) -> bool {
    let marks = ["<|channel|>", "<|message|>"];
    marks.iter().all(|mark| source.contains(mark) && tokenizer.id_of(mark).is_some())
}

/// The ids of the marks, which must appear in the text.
pub fn mark_ids(tokenizer: &Tokenizer) -> Vec<u32> {
    MARKS.iter().filter_map(|mark| tokenizer.id_of(mark)).collect()
}

enum Stage {
    /// What a message is, so far.
    Header(String),
    Reasoning,
    Content,
    /// Arguments, and whether they are whole.
    Call(JsonWalk, bool),
}

/// Takes one answer apart.
pub struct ChannelSplit {
    stage: Stage,
    /// Text that may begin a mark.
    held: String,
    sink: CallSink,
    /// Whether calls are read; else they are content.
    calls: bool,
    /// Bytes that were looked at.
    seen: usize,
    /// Bytes of the first header that the prompt brought.
    opened: usize,
    /// Where something else than reasoning begins, and whether that is a call.
    other_from: Option<(usize, bool)>,
}

impl ChannelSplit {
    /// For an answer whose prompt ends with `opening`.
    pub fn new(tools: Option<Arc<ToolSet>>, opening: &str) -> Self {
        let calls = tools.is_some();
        let sink = CallSink::new(tools.unwrap_or_default(), false, false);
        let (stage, held) = (Stage::Header(String::new()), String::new());
        let mut split =
            ChannelSplit { stage, held, sink, calls, seen: 0, opened: 0, other_from: None };
        // The prompt may have begun a message; what it says there is not part of the answer.
        let begun = opening.rfind("<|start|>").map_or("", |at| &opening[at..]);
        split.push(begun);
        split.opened = match &split.stage {
            Stage::Header(header) => header.len(),
            _ => 0,
        };
        (split.seen, split.other_from) = (0, split.other_from.map(|(_, call)| (0, call)));
        split
    }

    /// Where something else than reasoning begins, in bytes, once that is known.
    pub fn other_from(&self) -> Option<usize> {
        self.other_from.map(|(at, _)| at)
    }

    /// Whether that is a call.
    pub fn begins_with_call(&self) -> bool {
        self.other_from.is_some_and(|(_, call)| call)
    }

    /// Whole calls so far.
    pub fn complete(&self) -> usize {
        self.sink.complete
    }

    /// The parts that became certain with more text.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        let held = std::mem::take(&mut self.held);
        let mut rest = held.as_str();
        while let Some(at) = rest.find("<|") {
            self.text(&rest[..at]);
            rest = &rest[at..];
            if let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(**mark)) {
                rest = &rest[mark.len()..];
                self.seen += mark.len();
                self.mark(mark);
            } else if MARKS.iter().any(|mark| mark.starts_with(rest)) {
                break;
            } else {
                self.text("<|");
                rest = &rest["<|".len()..];
            }
        }
        if !rest.starts_with("<|") {
            let keep = usize::from(rest.ends_with('<'));
            let (certain, tail) = rest.split_at(rest.len() - keep);
            self.text(certain);
            rest = tail;
        }
        self.held = rest.to_owned();
        std::mem::take(&mut self.sink.out)
    }

    /// The parts that become certain with the end of the text.
    pub fn finish(&mut self) -> Vec<Part> {
        let held = std::mem::take(&mut self.held);
        self.text(&held);
        match &mut self.stage {
            // What never became a message is content.
            Stage::Header(header) => {
                let header = std::mem::take(header);
                self.sink.content(header.get(self.opened..).unwrap_or_default());
            }
            Stage::Call(_, whole) => {
                let whole = *whole;
                self.end_call(whole);
            }
            Stage::Reasoning | Stage::Content => {}
        }
        std::mem::take(&mut self.sink.out)
    }

    fn text(&mut self, text: &str) {
        self.seen += text.len();
        match &mut self.stage {
            _ if text.is_empty() => {}
            Stage::Header(header) => header.push_str(text),
            Stage::Reasoning => self.sink.reasoning(text),
            Stage::Content => self.sink.content(text),
            Stage::Call(walk, whole) => {
                for c in text.chars() {
                    *whole = *whole || walk.step(c) == Step::Last;
                }
                self.sink.text(text);
            }
        }
    }

    fn mark(&mut self, mark: &str) {
        match (&mut self.stage, mark) {
            (Stage::Header(header), "<|channel|>" | "<|constrain|>") => header.push_str(mark),
            (Stage::Header(header), "<|message|>") => {
                let header = std::mem::take(header);
                self.begin(&header);
            }
            (Stage::Call(_, whole), _) => {
                let whole = *whole;
                self.end_call(whole);
                self.stage = Stage::Header(String::new());
            }
            (_, "<|channel|>") => self.stage = Stage::Header(mark.to_owned()),
            _ => {
                self.stage = Stage::Header(String::new());
                self.opened = 0;
            }
        }
    }

    /// A message begins, of the kind that its header says.
    fn begin(&mut self, header: &str) {
        self.opened = 0;
        let word = |from: &str| -> String {
            let part = |c: &char| c.is_ascii_alphanumeric() || "_.-".contains(*c);
            header.split_once(from).map_or("", |(_, rest)| rest).chars().take_while(part).collect()
        };
        let recipient = word("to=");
        let name = recipient.strip_prefix("functions.").unwrap_or(&recipient);
        if self.calls && self.sink.name(name) {
            self.other_from.get_or_insert((self.seen, true));
            self.stage = Stage::Call(JsonWalk::default(), false);
        } else if word("<|channel|>") == "analysis" {
            self.stage = Stage::Reasoning;
        } else {
            self.other_from.get_or_insert((self.seen, false));
            self.stage = Stage::Content;
        }
    }

    /// A call is whole if its arguments are.
    fn end_call(&mut self, whole: bool) {
        if whole {
            self.sink.close();
        } else {
            self.sink.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::Whole;
    use proptest::prelude::*;

    const ANSWER: &str = "<|channel|>analysis<|message|>The user < wants |> it.<|end|><|start|>assistant\
        <|channel|>commentary<|message|>One moment.<|end|><|start|>assistant<|channel|>commentary \
        to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>";

    fn read(opening: &str, pieces: &[&str], calls: bool) -> (Whole, usize, Option<usize>) {
        let tools = calls.then(|| Arc::new(ToolSet::default()));
        let mut split = ChannelSplit::new(tools, opening);
        let mut whole = Whole::default();
        for piece in pieces {
            split.push(piece).into_iter().for_each(|part| whole.push(part));
        }
        split.finish().into_iter().for_each(|part| whole.push(part));
        whole.calls.iter_mut().for_each(|call| call.id.clear());
        (whole, split.complete(), split.other_from())
    }

    #[test]
    fn channels_are_told_apart() {
        let (whole, complete, from) = read("<|start|>assistant", &[ANSWER], true);
        assert_eq!(whole.reasoning, "The user < wants |> it.");
        assert_eq!((whole.content.as_str(), complete), ("One moment.", 1));
        assert_eq!(from, ANSWER.find("One moment."));
        let call = &whole.calls[0];
        assert_eq!(
            (call.name.as_str(), call.arguments.as_str()),
            ("get_weather", "{\"city\": \"Paris\"}")
        );
        let text = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Yes";
        let (whole, ..) = read("<|start|>assistant", &[text], false);
        assert_eq!((whole.reasoning.as_str(), whole.content.as_str()), ("Hm", "Yes"));
        let opening = "<|end|><|start|>assistant<|channel|>final<|message|>";
        let (whole, _, from) = read(opening, &["Yes"], false);
        assert_eq!((whole.content.as_str(), from), ("Yes", Some(0)));
        // An older way of naming the recipient, and a call that is cut.
        let text = " to=functions.f<|channel|>commentary json<|message|>{\"a\": ";
        let (whole, complete, _) = read("<|start|>assistant", &[text], true);
        assert_eq!((whole.calls[0].arguments.as_str(), complete), ("{\"a\": ", 0));
        let (whole, ..) = read("<|start|>assistant", &["no header at all <|chan"], true);
        assert_eq!(whole.content, "no header at all <|chan");
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(cuts in prop::collection::vec(0..ANSWER.len(), 0..8), calls: bool) {
            let mut cuts = cuts;
            cuts.extend([0, ANSWER.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|w| &ANSWER[w[0]..w[1]]).collect();
            let whole = read("<|start|>assistant", &[ANSWER], calls);
            prop_assert_eq!(read("<|start|>assistant", &pieces, calls), whole);
        }
    }
}
