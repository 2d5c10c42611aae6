//! `TextState`: from accepted ids to released text.
//!
//! Ids become text as soon as their bytes are whole characters. The newest text is held back while it
//! may be the beginning of a stop string or of a banned string. Everything here can be cloned in
//! small, which is what makes going back possible.
//!
//! Invariant: `released ≤ decoded.len()`, and nothing before `released` is ever taken back.

use pagella_text::{BanMatch, StopMatcher, StopStep, StreamDecoder};

use crate::job::ban_watch::BanWatch;
use crate::job::record::TokenLogprobs;

/// An accepted id and what is reported about it.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub id: u32,
    /// Where its text begins in the decoded text, in bytes.
    pub start: usize,
    /// Bytes decoded before it: less than `start` if it continues an unfinished character.
    pub decoded_before: usize,
    pub p: f32,
    pub top: Vec<(u32, f32)>,
    pub logprobs: Option<TokenLogprobs>,
    pub logits: Option<Vec<f32>>,
    pub processed_logits: Option<Vec<f32>>,
}

/// The text of a job.
pub(crate) struct TextState {
    decoder: StreamDecoder,
    stop: StopMatcher,
    ban: Option<BanWatch>,
    /// Most ids that can be taken back; older ones are released even if a match is pending.
    unsettled_max: usize,
    /// All text, held text included.
    decoded: String,
    /// Bytes of it that were released.
    released: usize,
    /// Every accepted id; the first `released_ids` were released.
    accepted: Vec<Accepted>,
    released_ids: usize,
}

/// What a piece of text led to.
pub(crate) enum Found {
    /// Neither a stop string nor a banned one.
    Nothing,
    /// A stop string.
    Stop(StopAt),
    /// A banned string, which begins in the accepted id with this index and ends at byte `end`;
    /// a stop string that the same text completes counts if the banned one is let through.
    Ban { accepted: usize, end: usize, stop: Option<StopAt> },
}

/// A stop string: its index and where it begins.
#[derive(Clone, Copy)]
pub(crate) struct StopAt {
    pub index: usize,
    pub cut: usize,
}

/// What [`TextState::rewind`] needs besides the lengths.
#[derive(Clone)]
pub(crate) struct TextPoint {
    decoder: StreamDecoder,
    stop: StopMatcher,
    ban: Option<BanWatch>,
    decoded: usize,
    accepted: usize,
}

/// Text and ids that became certain together.
#[derive(Default)]
pub(crate) struct Released {
    pub text: String,
    pub byte_offset: usize,
    pub ids: Vec<Accepted>,
    /// Where the text of each id ends, without an unfinished character.
    pub ends: Vec<usize>,
}

impl TextState {
    pub fn new(
        decoder: StreamDecoder,
        stop: StopMatcher,
        ban: Option<BanWatch>,
        unsettled_max: usize,
    ) -> Self {
        TextState {
            decoder,
            stop,
            ban,
            unsettled_max,
            decoded: String::new(),
            released: 0,
            accepted: Vec::new(),
            released_ids: 0,
        }
    }

    /// Whether going back can become necessary.
    pub fn has_bans(&self) -> bool {
        self.ban.is_some()
    }

    /// All ids so far.
    pub fn accepted(&self) -> &[Accepted] {
        &self.accepted
    }

    /// Number of leading accepted ids that can no longer be taken back. The one after them holds the
    /// first byte of what may become a banned string.
    pub fn settled_ids(&self) -> usize {
        let Some(ban) = &self.ban else { return self.accepted.len() };
        if ban.pending == 0 && self.decoder.held_bytes() == 0 {
            return self.accepted.len();
        }
        let pending = self.decoded.len() - ban.pending;
        let settled = self.accepted.partition_point(|a| a.start <= pending).saturating_sub(1);
        let oldest = self.accepted.len().saturating_sub(self.unsettled_max);
        settled.max(self.released_ids).max(oldest)
    }

    /// Where the text of an accepted id ends.
    fn end_of(&self, idx: usize) -> usize {
        self.accepted.get(idx + 1).map_or(self.end_offset(), |a| a.start)
    }

    /// Where the text of the next id begins.
    fn end_offset(&self) -> usize {
        self.decoded.len() + self.decoder.held_bytes()
    }

    /// A place to come back to.
    pub fn point(&self) -> TextPoint {
        TextPoint {
            decoder: self.decoder.clone(),
            stop: self.stop.clone(),
            ban: self.ban.clone(),
            decoded: self.decoded.len(),
            accepted: self.accepted.len(),
        }
    }

    /// Adds an id. Where its text begins is filled in here.
    pub fn push(&mut self, mut accepted: Accepted) -> Found {
        let before = self.decoded.len();
        let held = self.decoder.held_bytes();
        let piece = self.decoder.push(accepted.id);
        self.decoded.push_str(piece);
        // Held bytes that this id does not continue have become one U+FFFD of their own.
        let broken = held > 0 && piece.starts_with('\u{FFFD}');
        let own = if broken { '\u{FFFD}'.len_utf8() } else { held };
        (accepted.start, accepted.decoded_before) = (before + own, before);
        self.accepted.push(accepted);
        let piece = &self.decoded[before..];
        let ban = self.ban.as_mut().and_then(|ban| ban.push(piece));
        let stop = self.stop.push(piece);
        self.judge(stop, ban)
    }

    fn judge(&self, stop: StopStep, ban: Option<BanMatch>) -> Found {
        let stop = stop.matched.map(|found| {
            let end = self.decoded.len() - found.rest.len();
            (StopAt { index: found.index, cut: end - self.stop.stop_bytes(found.index) }, end)
        });
        match (stop, ban) {
            // What is complete first decides; a tie goes to the ban.
            (Some((stop, end)), ban) if ban.as_ref().is_none_or(|ban| end < ban.end) => {
                Found::Stop(stop)
            }
            (stop, Some(ban)) => self.banned(&ban, stop.map(|(stop, _)| stop)),
            _ => Found::Nothing,
        }
    }

    /// The id in whose text a banned string begins.
    fn banned(&self, ban: &BanMatch, stop: Option<StopAt>) -> Found {
        let behind = self.accepted.partition_point(|a| a.start <= ban.start);
        Found::Ban { accepted: behind.saturating_sub(1), end: ban.end, stop }
    }

    /// Lets the banned string that ends at `end` through. What is found in its place: the next one, a
    /// stop string, or nothing.
    pub fn let_through(&mut self, end: usize, stop: Option<StopAt>) -> Found {
        let next = self.ban.as_mut().and_then(|ban| ban.resume_after(end, &self.decoded));
        match (next, stop) {
            (Some(ban), stop) => self.banned(&ban, stop),
            (None, Some(stop)) => Found::Stop(stop),
            (None, None) => Found::Nothing,
        }
    }

    /// Goes back to `point`. Returns what is taken back: text and ids.
    pub fn rewind(&mut self, point: TextPoint) -> (String, Vec<u32>) {
        let text = self.decoded.split_off(point.decoded.min(self.decoded.len()));
        let ids = self.accepted.drain(point.accepted..).map(|a| a.id).collect();
        (self.decoder, self.stop, self.ban) = (point.decoder, point.stop, point.ban);
        (text, ids)
    }

    /// Releases what is certain: neither part of a stop string nor of an id that may be taken back.
    pub fn release(&mut self) -> Released {
        let settled = self.settled_ids();
        let stays = self.accepted.get(settled).map_or(self.decoded.len(), |a| a.decoded_before);
        let certain = stays.min(self.decoded.len() - self.stop.held().len());
        self.release_to(certain, |end| end <= certain)
    }

    /// Ends the text: an unfinished character becomes U+FFFD, and a match that only the end completes
    /// is found. Everything else stays held.
    pub fn end(&mut self) -> Found {
        let tail = self.decoder.finish().to_owned();
        self.decoded.push_str(&tail);
        let ban = self.ban.as_mut().and_then(|ban| ban.push(&tail).or_else(|| ban.finish()));
        let stop = self.stop.push(&tail);
        self.judge(stop, ban)
    }

    /// Releases everything.
    pub fn release_all(&mut self) -> Released {
        self.settle();
        self.release_to(self.decoded.len(), |_| true)
    }

    /// Nothing is taken back any more.
    fn settle(&mut self) {
        self.ban = None;
    }

    /// Releases the text before a stop string and the ids that begin before it. Returns also the
    /// overlap of the last of these ids, and what is never released.
    pub fn cut(&mut self, cut: usize) -> (Released, usize, String, Vec<u32>) {
        self.settle();
        let cut = cut.max(self.released);
        let ids = self.accepted.partition_point(|a| a.start < cut);
        let overlap = if ids > 0 { self.end_of(ids - 1).saturating_sub(cut) } else { 0 };
        let held = self.accepted.split_off(ids.max(self.released_ids));
        let released = self.release_to(cut, |_| true);
        let text = self.decoded.split_off(cut);
        (released, overlap, text, held.into_iter().map(|a| a.id).collect())
    }

    /// What was never released, for a job that is stopped from outside.
    pub fn drop_held(&mut self) -> (String, Vec<u32>) {
        let text = self.decoded.split_off(self.released);
        let ids = self.accepted.split_off(self.released_ids);
        (text, ids.into_iter().map(|a| a.id).collect())
    }

    /// The released text and ids.
    pub fn finish(self) -> (String, Vec<u32>) {
        let mut text = self.decoded;
        text.truncate(self.released);
        let ids = self.accepted.into_iter().take(self.released_ids).map(|a| a.id).collect();
        (text, ids)
    }

    /// Releases text up to `to`, and the leading ids for whose ends `certain` holds.
    fn release_to(&mut self, to: usize, certain: impl Fn(usize) -> bool) -> Released {
        let (byte_offset, to) = (self.released, to.max(self.released));
        let text = self.decoded[byte_offset..to].to_owned();
        self.released = to;
        let (mut ids, mut ends) = (Vec::new(), Vec::new());
        while self.released_ids < self.accepted.len() && certain(self.end_of(self.released_ids)) {
            let behind = self.accepted.get(self.released_ids + 1);
            ends.push(behind.map_or(self.decoded.len(), |behind| behind.decoded_before));
            let next = &mut self.accepted[self.released_ids];
            // What is reported once need not be kept.
            let (top, logprobs) = (std::mem::take(&mut next.top), next.logprobs.take());
            let (logits, processed_logits) = (next.logits.take(), next.processed_logits.take());
            ids.push(Accepted { top, logprobs, logits, processed_logits, ..*next });
            self.released_ids += 1;
        }
        Released { text, byte_offset, ids, ends }
    }
}

#[cfg(test)]
mod tests {
    use pagella_text::{BanMatcher, BanPattern, BanRule, SpecialTokens, StreamStart};

    use super::*;
    use crate::tests::stand_in::tokenizer;

    fn accepted(id: u32) -> Accepted {
        Accepted {
            id,
            start: 0,
            decoded_before: 0,
            p: 1.0,
            top: Vec::new(),
            logprobs: None,
            logits: None,
            processed_logits: None,
        }
    }

    #[test]
    fn every_id_says_where_its_text_ends() {
        // `a`, `€` in three ids, `END`, half a character, `b`, and a control token that is hidden.
        let ids = [0, 53, 54, 55, 56, 53, 1, 57];
        let decoder = || tokenizer().stream_decoder(SpecialTokens::Hide, StreamStart::Continuation);
        let mut alone = decoder();
        let expected: Vec<usize> = ids
            .iter()
            .scan(0, |end, id| {
                *end += alone.push(*id).len();
                Some(*end)
            })
            .collect();
        for stops in [vec![], vec!["ENDs"]] {
            let stop = StopMatcher::new(&stops).unwrap();
            let mut text = TextState::new(decoder(), stop, None, 8);
            let mut ends = Vec::new();
            for id in ids {
                assert!(matches!(text.push(accepted(id)), Found::Nothing));
                ends.extend(text.release().ends);
            }
            ends.extend(text.release_all().ends);
            assert_eq!(ends, expected, "{stops:?}");
        }
    }

    #[test]
    fn an_open_ended_ban_holds_only_as_much_as_can_be_taken_back() {
        // Once begun it can be completed at any time.
        let rule = BanRule { pattern: BanPattern::Regex("a.*z".into()), ..BanRule::text("a") };
        let decoder = tokenizer().stream_decoder(SpecialTokens::Hide, StreamStart::Continuation);
        let ban = BanWatch::new(BanMatcher::new(&[rule]).unwrap());
        let stop = StopMatcher::new::<&str>(&[]).unwrap();
        let mut text = TextState::new(decoder, stop, Some(ban), 8);
        let mut released = String::new();
        for n in 1..=20 {
            assert!(matches!(text.push(accepted(0)), Found::Nothing));
            released.push_str(&text.release().text);
            assert_eq!(released.len(), usize::max(n, 8) - 8);
            assert_eq!(text.settled_ids(), released.len());
        }
        // The match is found where it begins, which cannot be reached any more.
        assert!(matches!(text.push(accepted(25)), Found::Ban { accepted: 0, .. }));
    }
}
