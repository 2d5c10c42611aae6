//! What operations need besides vectors, as plain data: norms, attention, experts.

use pagella_arch::{
    Activation, ExpertGroups, NormKind, QkNormOrder, QkNormSpan, QueryGrowth, RouterScore, Weigh,
};

use crate::{KvValues, TableDtype};

/// A norm with its weights as f32, the family's offset already added.
#[derive(Clone, Debug)]
pub struct NormWeights {
    /// Root-mean-square or layer norm.
    pub kind: NormKind,
    /// Added to the mean square or variance.
    pub eps: f32,
    /// Multipliers. Shape `[width]`, or `[heads, width]` for per-head norms.
    pub weight: Vec<f32>,
    /// Added last; layer norms only. Same shape as `weight`.
    pub bias: Option<Vec<f32>>,
}

/// Everything attention needs besides the vectors; resolved once per layer at load.
#[derive(Clone, Debug)]
pub struct AttentionOp {
    /// Index of the layer in the cache.
    pub layer: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Where values are.
    pub values: KvValues,
    /// Scores are `scale · q·k`.
    pub scale: f32,
    /// `s = cap · tanh(s / cap)` on scaled scores, before masking.
    pub softcap: Option<f32>,
    /// Keys a query sees at most, itself included.
    pub window: Option<usize>,
    /// Keys come in chunks of this many positions: a query at position `p` sees none before
    /// `⌊p / chunk⌋ · chunk`.
    pub chunk: Option<usize>,
    /// Clamp of q, k and v, before norm and rotation.
    pub clip_qkv: Option<f32>,
    /// What a norm of queries and keys spans.
    pub qk_norm_span: QkNormSpan,
    /// Whether queries and keys are normed before or after rotation.
    pub qk_norm_order: QkNormOrder,
    /// Growth of queries with their position, after norm and rotation.
    pub query_growth: Option<QueryGrowth>,
}

impl AttentionOp {
    /// Attention as most models have it: scores by the root of the head size, all earlier keys.
    pub fn plain(layer: usize, heads: usize, kv_heads: usize, head_dim: usize) -> Self {
        Self {
            layer,
            heads,
            kv_heads,
            head_dim,
            values: KvValues::Stored,
            scale: 1.0 / (head_dim as f32).sqrt(),
            softcap: None,
            window: None,
            chunk: None,
            clip_qkv: None,
            qk_norm_span: QkNormSpan::default(),
            qk_norm_order: QkNormOrder::default(),
            query_growth: None,
        }
    }

    /// Elements of a value, and of what a head gives.
    pub fn value_dim(&self) -> usize {
        match self.values {
            KvValues::Stored => self.head_dim,
            KvValues::InKeys(elements) => elements,
        }
    }

    /// What of this op is beyond heads, windows, soft-caps and norms of heads before rotation: the
    /// first such thing by name. A backend that has none of them refuses by it.
    pub fn special(&self) -> Option<&'static str> {
        if self.values != KvValues::Stored {
            Some("latent attention")
        } else if self.chunk.is_some() {
            Some("attention in chunks")
        } else if self.qk_norm_span == QkNormSpan::Token {
            Some("a norm over all heads together")
        } else if self.qk_norm_order == QkNormOrder::AfterRope {
            Some("a norm of heads after rotation")
        } else if self.query_growth.is_some() {
            Some("queries that grow with their position")
        } else {
            None
        }
    }
}

/// Linears of one shape, one per head, with exact weights.
#[derive(Clone, Debug)]
pub struct HeadWeights {
    /// Heads.
    pub heads: usize,
    /// Inputs of each.
    pub in_features: usize,
    /// Outputs of each.
    pub out_features: usize,
    /// `[heads, out, in]`.
    pub values: Vec<f32>,
    /// The narrowest type that is known to hold every value.
    pub dtype: TableDtype,
}

/// Everything the experts of a layer need besides weights; resolved once per layer at load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoeOp {
    /// Inputs of the router and of every expert, and outputs of every expert.
    pub hidden: usize,
    /// Inner width of every expert.
    pub inner: usize,
    /// Experts of the layer.
    pub experts: usize,
    /// Experts that a token takes; at least 1, at most `experts`.
    pub experts_per_token: usize,
    /// How the router's logits become weights.
    pub score: RouterScore,
    /// Whether the weights of a token's experts are divided by their sum.
    pub renormalize: bool,
    /// Activation of the gates.
    pub act: Activation,
    /// Multiplier of the sum when it is added to the residual.
    pub scale: f32,
    /// How experts are chosen and weighed, beyond the above.
    pub routing: Routing,
}

/// How experts are chosen and weighed, beyond the best by their logits.
///
/// With a bias or groups, an expert's rank is its score (after division by the sum of a softmax)
/// plus its bias, in f32; without, it is the logit. Of equal ranks the lower id or index comes first.
/// Where there are groups, only experts of the groups with the largest ranks can be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Whether [`Backend::bias_selection`](crate::Backend::bias_selection) gives values that are added to scores for the choice.
    pub selection_bias: bool,
    /// Groups of neighbours of which a token may use a few.
    pub groups: Option<ExpertGroups>,
    /// Multiplies the weights last, after the division by their sum.
    pub weight_scale: f32,
    /// Whether a weight multiplies what an expert gives or what it gets.
    pub weigh: Weigh,
}

impl Default for Routing {
    fn default() -> Self {
        Self { selection_bias: false, groups: None, weight_scale: 1.0, weigh: Weigh::Output }
    }
}

impl MoeOp {
    /// What of this op is beyond the best by their logits with weighed outputs: the first such
    /// thing by name. A backend that has none of them refuses by it.
    pub fn special(&self) -> Option<&'static str> {
        if self.routing.selection_bias {
            Some("a bias for the selection of experts")
        } else if self.routing.groups.is_some() {
            Some("groups of experts")
        } else if self.routing.weight_scale != 1.0 {
            Some("scaled weights of experts")
        } else if self.routing.weigh == Weigh::Input {
            Some("experts with weighed inputs")
        } else if matches!(self.act, Activation::ClampedSwiglu { .. }) {
            Some("clamped SwiGLU")
        } else {
            None
        }
    }
}
