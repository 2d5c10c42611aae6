//! What an operator can choose. A setting is declared once, as a field of its section: type, default,
//! range, help, whether it can change while the server runs. The struct that requests read, and
//! everything that `config` does with files, variables and flags, follow from that line.

mod answer;
mod declare;
mod device_numbers;
mod draft;
mod limits;
mod live;
mod logging;
mod lora;
mod model;
mod network;
mod operation;
mod setting;
mod subnet;
mod unbuilt;
mod value;

use std::sync::LazyLock;

pub use answer::{
    Chat, ConstraintSettings, Developer, Embeddings, HostedTools, ReasoningField, Rerank,
    RerankMethod, Responses, Sampling, Tools, UsualPooling,
};
pub use device_numbers::DeviceNumbers;
pub use draft::{DRAFT_TOKENS_MAX, DraftMode, DraftSettings, DraftTokens};
pub use limits::Limits;
pub use live::LiveSettings;
pub use logging::{LogLevel, Logging, PeerName};
pub use lora::{AdapterList, LoraSettings};
pub use model::{ConversationSettings, ModelSettings, ReasoningSettings, Toggle};
pub use network::{ApiServer, Auth, CacheIsolation, DocsAuth, Network, Tls, UnknownFields};
pub use operation::{Downloads, Health, MetricNames, MetricSettings, MetricsAuth, Shutdown, Ui};
pub use setting::Setting;
pub use subnet::Subnet;

/// Everything that can be chosen, section by section, in the order in which files show them.
macro_rules! settings {
    ($( $(#[doc = $about:literal])+ $section:ident: $type:ty; )+) => {
        /// Everything that can be chosen.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Settings { $( $(#[doc = $about])+ pub $section: $type, )+ }

        /// Every key, by section.
        static ENTRIES: LazyLock<Vec<Setting>> = LazyLock::new(|| {
            let mut entries: Vec<Setting> = [$( <$type>::entries() ),+].into_iter().flatten().collect();
            for unbuilt in unbuilt::entries() {
                let last = entries.iter().rposition(|known| known.section == unbuilt.section);
                entries.insert(last.map_or(entries.len(), |last| last + 1), unbuilt);
            }
            entries
        });
    };
}

settings! {
    /// Where and how the server listens.
    network: Network;
    /// Who may ask.
    auth: Auth;
    /// What is written down.
    logging: Logging;
    /// How much.
    limits: Limits;
    /// Which models there are, and which names stand for them.
    model: ModelSettings;
    /// How tokens are guessed.
    draft_model: DraftSettings;
    /// Conversations.
    chat: Chat;
    /// Tools.
    tools: Tools;
    /// Schemas and grammars.
    constraints: ConstraintSettings;
    /// Answers that are kept.
    responses: Responses;
    /// How tokens are chosen where a request does not say.
    sampling: Sampling;
    /// Which adapters there are.
    lora: LoraSettings;
    /// Vectors of texts.
    embeddings: Embeddings;
    /// Ranking of texts.
    rerank: Rerank;
    /// For those who work on clients.
    developer: Developer;
    /// What may be fetched.
    downloads: Downloads;
    /// What is counted.
    metrics: MetricSettings;
    /// When the engine counts as dead.
    health: Health;
    /// How the server ends.
    shutdown: Shutdown;
    /// The built-in page.
    ui: Ui;
}

/// Every key, by section, in the order in which files show them.
pub fn entries() -> impl Iterator<Item = &'static Setting> {
    ENTRIES.iter()
}

/// The setting of `section.key`.
pub(crate) fn find(path: &str) -> Option<&'static Setting> {
    let (section, key) = path.split_once('.')?;
    entries().find(|known| known.section == section && known.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_stands_twice_and_sections_stand_together() {
        let mut seen: Vec<String> = Vec::new();
        let mut sections: Vec<&str> = Vec::new();
        for entry in entries() {
            assert!(!seen.contains(&entry.path()), "{}", entry.path());
            seen.push(entry.path());
            if sections.last() != Some(&entry.section) {
                assert!(!sections.contains(&entry.section), "{}", entry.path());
                sections.push(entry.section);
            }
            assert!(entry.doc.is_empty() != entry.built, "{}", entry.path());
            assert!(!entry.doc.ends_with('.') && entry.doc.trim() == entry.doc, "{}", entry.path());
        }
    }

    #[test]
    fn every_default_sets_what_is_the_default() {
        let mut settings = Settings::default();
        for entry in entries() {
            entry.set(&mut settings, &entry.parse(&entry.default).unwrap()).unwrap();
            let (now, usual) = (format!("{settings:?}"), format!("{:?}", Settings::default()));
            assert_eq!(now, usual, "{}", entry.path());
        }
    }
}
