//! What an operator can choose, with defaults. Plain data; who reads it from where is not its
//! business.

mod answer;
mod auth;
mod limits;
mod live;
mod logging;
mod model;
mod network;
mod operation;
mod subnet;

pub use answer::{
    Chat, ConstraintSettings, Developer, Embeddings, HostedTools, ReasoningField, Rerank,
    RerankMethod, Responses, Sampling, Tools,
};
pub use auth::{Auth, CacheIsolation};
pub use limits::Limits;
pub use live::LiveSettings;
pub use logging::{LogLevel, Logging, PeerName};
pub use model::{ConversationSettings, ModelSettings, ReasoningSettings, Toggle};
pub use network::{ApiServer, DocsAuth, Network, Tls, UnknownFields};
pub use operation::{Downloads, Health, MetricNames, MetricSettings, MetricsAuth, Shutdown, Ui};
pub use subnet::Subnet;

/// Everything that can be chosen.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Where and how the server listens.
    pub network: Network,
    /// Who may ask.
    pub auth: Auth,
    /// How much.
    pub limits: Limits,
    /// What is written down.
    pub logging: Logging,
    /// Which models there are, and which names stand for them.
    pub model: ModelSettings,
    /// Conversations.
    pub chat: Chat,
    /// Tools.
    pub tools: Tools,
    /// Schemas and grammars.
    pub constraints: ConstraintSettings,
    /// Answers that are kept.
    pub responses: Responses,
    /// How tokens are chosen where a request does not say.
    pub sampling: Sampling,
    /// Vectors of texts.
    pub embeddings: Embeddings,
    /// Ranking of texts.
    pub rerank: Rerank,
    /// What may be fetched.
    pub downloads: Downloads,
    /// What is counted.
    pub metrics: MetricSettings,
    /// When the engine counts as dead.
    pub health: Health,
    /// How the server ends.
    pub shutdown: Shutdown,
    /// The built-in page.
    pub ui: Ui,
    /// For those who work on clients.
    pub developer: Developer,
}
