//! The head: norm and product of the tokens that want logits.

use pagella_backend::BackendError;

use crate::linear::{self, CudaLinear, Input, Product, Runner};
use crate::ops::norm::CudaNorm;
use crate::step::CudaStep;
use crate::tensor::Tensor;

/// Logits of the plan's `logit_tokens`, without scale and soft-cap.
pub(crate) fn project_head(
    runner: &Runner<'_>,
    step: &CudaStep,
    x: &Tensor,
    norm: &CudaNorm,
    head: &CudaLinear,
    out: &mut Tensor,
) -> Result<(), BackendError> {
    norm.expect(x.width)?;
    x.expect("head input", step.plan.tokens(), head.in_features)?;
    out.expect("logits", step.plan.logit_tokens().len(), head.out_features)?;
    let input = Input {
        x: x.ptr(),
        stride: x.width,
        row_map: step.pointers.logit_tokens,
        norm: norm.args(),
        rows: step.logit_rows,
    };
    linear::run(runner, &input, &[Product { linear: head, out: out.ptr(), add: None }])
}
