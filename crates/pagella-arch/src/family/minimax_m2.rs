//! MiniMax M2: sigmoid router with a bias for the selection, wide norm, half a head rotates.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, ExpertRecord, QkNormRecord, Record};
use crate::spec::{QkNormSpan, RouterScore};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "minimax_m2",
    architectures: &["MiniMaxM2ForCausalLM"],
    notes: "MiniMax M2 and M2.1: sigmoid router, wide norm of queries and keys",
    record: Record {
        qk_norm: Some(QkNormRecord { span: QkNormSpan::Token, ..QkNormRecord::RMS }),
        experts: Some(ExpertRecord {
            experts: 256,
            experts_per_token: 8,
            score: RouterScore::Sigmoid,
            selection_bias: Some(".block_sparse_moe.e_score_correction_bias"),
            ..ExpertRecord::MIXTRAL
        }),
        defaults: Defaults {
            context: 196_608,
            head_dim: Some(128),
            rope_theta: 5e6,
            ..Defaults::LLAMA
        },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
