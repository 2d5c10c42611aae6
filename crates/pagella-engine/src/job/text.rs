//! `TextState`: from accepted ids to released text.
//!
//! Ids become text as soon as their bytes are whole characters. The newest text is held back while it
//! may be the beginning of a stop string or of a banned string. Everything here can be cloned in
//! small, which is what makes going back possible.
//!
//! Invariant: `released ≤ decoded.len()`, and nothing before `released` is ever taken back.

use pagella_text::{BanMatch, BanMatcher, BanStep, StopMatcher, StopStep, StreamDecoder};

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
    ban: Option<BanMatcher>,
    /// All text, held text included.
    decoded: String,
    /// Bytes of it that were released.
    released: usize,
    /// Bytes at the end that may become a banned string.
    ban_pending: usize,
    /// Every accepted id; the first `released_ids` were released.
    accepted: Vec<Accepted>,
    released_ids: usize,
}

/// What a piece of text led to.
pub(crate) enum Found {
    Nothing,
    /// A stop string: its index and where it begins.
    Stop {
        index: usize,
        cut: usize,
    },
    /// A banned string, which begins in the accepted id with this index.
    Ban {
        accepted: usize,
    },
}

/// What [`TextState::rewind`] needs besides the lengths.
#[derive(Clone)]
pub(crate) struct TextPoint {
    decoder: StreamDecoder,
    stop: StopMatcher,
    ban: Option<BanMatcher>,
    decoded: usize,
    ban_pending: usize,
    accepted: usize,
}

/// Text and ids that became certain together.
#[derive(Default)]
pub(crate) struct Released {
    pub text: String,
    pub byte_offset: usize,
    pub ids: Vec<Accepted>,
}

impl TextState {
    pub fn new(decoder: StreamDecoder, stop: StopMatcher, ban: Option<BanMatcher>) -> Self {
        TextState {
            decoder,
            stop,
            ban,
            decoded: String::new(),
            released: 0,
            ban_pending: 0,
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
        if self.ban.is_none() {
            return self.accepted.len();
        }
        let pending = self.decoded.len() - self.ban_pending;
        let settled = match (self.ban_pending, self.decoder.held_bytes()) {
            (0, 0) => self.accepted.len(),
            // The ids of an unfinished character.
            (0, _) => self.accepted.partition_point(|a| a.start < pending),
            _ => self.accepted.partition_point(|a| a.start <= pending).saturating_sub(1),
        };
        settled.max(self.released_ids)
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
            ban_pending: self.ban_pending,
            accepted: self.accepted.len(),
        }
    }

    /// Adds an id. Where its text begins is filled in here.
    pub fn push(&mut self, mut accepted: Accepted) -> Found {
        (accepted.start, accepted.decoded_before) = (self.end_offset(), self.decoded.len());
        let id = accepted.id;
        self.accepted.push(accepted);
        let piece = self.decoder.push(id);
        self.decoded.push_str(piece);
        let (stop, ban) = {
            let before = self.decoded.len() - piece.len();
            let piece = &self.decoded[before..];
            let ban = self.ban.as_mut().map(|ban| ban.push(piece));
            (self.stop.push(piece), ban)
        };
        self.judge(stop, ban)
    }

    fn judge(&mut self, stop: StopStep, ban: Option<BanStep>) -> Found {
        let ban = ban.and_then(|step| {
            self.ban_pending = step.pending_bytes;
            step.matched
        });
        let stop = stop.matched.map(|found| {
            let end = self.decoded.len() - found.rest.len();
            (found.index, end - self.stop_len(found.index), end)
        });
        match (stop, ban) {
            // What is complete first decides; a tie goes to the ban.
            (Some((index, cut, end)), ban) if ban.as_ref().is_none_or(|ban| end < ban.end) => {
                Found::Stop { index, cut }
            }
            (_, Some(ban)) => self.banned(&ban),
            _ => Found::Nothing,
        }
    }

    fn stop_len(&self, index: usize) -> usize {
        self.stop.stop_bytes(index)
    }

    /// The id in whose text a banned string begins.
    fn banned(&self, ban: &BanMatch) -> Found {
        let behind = self.accepted.partition_point(|a| a.start <= ban.start);
        Found::Ban { accepted: behind.saturating_sub(1) }
    }

    /// Goes back to `point`. Returns what is taken back: text and ids.
    pub fn rewind(&mut self, point: TextPoint) -> (String, Vec<u32>) {
        let text = self.decoded.split_off(point.decoded.min(self.decoded.len()));
        let ids = self.accepted.drain(point.accepted..).map(|a| a.id).collect();
        (self.decoder, self.stop, self.ban) = (point.decoder, point.stop, point.ban);
        self.ban_pending = point.ban_pending;
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
        let ban = self.ban.as_mut().map(|ban| {
            let step = ban.push(&tail);
            BanStep { matched: step.matched.or_else(|| ban.finish()), ..step }
        });
        let stop = self.stop.push(&tail);
        self.judge(stop, ban)
    }

    /// Releases everything.
    pub fn release_all(&mut self) -> Released {
        self.ban_pending = 0;
        self.release_to(self.decoded.len(), |_| true)
    }

    /// Releases the text before a stop string and the ids that begin before it. Returns also the
    /// overlap of the last of these ids, and what is never released.
    pub fn cut(&mut self, cut: usize) -> (Released, usize, String, Vec<u32>) {
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
        let mut ids = Vec::new();
        while self.released_ids < self.accepted.len() && certain(self.end_of(self.released_ids)) {
            let next = &mut self.accepted[self.released_ids];
            // What is reported once need not be kept.
            let (top, logprobs) = (std::mem::take(&mut next.top), next.logprobs.take());
            let (logits, processed_logits) = (next.logits.take(), next.processed_logits.take());
            ids.push(Accepted { top, logprobs, logits, processed_logits, ..*next });
            self.released_ids += 1;
        }
        Released { text, byte_offset, ids }
    }
}
