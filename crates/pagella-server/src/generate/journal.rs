//! What an operator wants written down of a request's jobs: the prompts as the engine gets them, and
//! how answers are sampled.

use std::sync::Arc;

use pagella_engine::JobOptions;
use pagella_text::SpecialTokens;
use serde_json::{Value, json};

use super::submit::Prompt;
use crate::app::App;
use crate::call::Call;
use crate::log::secret::Secrets;
use crate::model::ServedModel;

/// What is written down of one request.
pub struct Journal {
    app: Arc<App>,
    id: String,
    secrets: Secrets,
    prompts: bool,
    params: bool,
}

impl Journal {
    /// As the settings say now; `None` where nothing is.
    pub fn of(call: &Call) -> Option<Self> {
        let logging = &call.app.settings.logging;
        let (prompts, params) = (logging.log_prompt, logging.log_generation_params);
        (prompts || params).then(|| Journal {
            app: call.app.clone(),
            id: call.id.clone(),
            secrets: Secrets::of(&call.headers),
            prompts,
            params,
        })
    }

    /// Writes it down. Takes a while for long prompts: not for threads that move bytes.
    pub fn write(&self, model: &ServedModel, job: &JobOptions, n: usize, prompts: &[Prompt]) {
        let id = || Value::from(self.id.as_str());
        if self.params {
            self.app.log.show("params", &[("id", id()), ("params", params(job, n))]);
        }
        if !self.prompts {
            return;
        }
        for (idx, prompt) in prompts.iter().enumerate() {
            let decode = |ids: &[u32]| model.parts.tokenizer.decode(ids, SpecialTokens::Show);
            let text = |ids: &[u32]| Value::from(self.secrets.text(&decode(ids)));
            let negative = prompt.negative.as_deref().map_or(Value::Null, text);
            let fields = [
                ("id", id()),
                ("index", idx.into()),
                ("tokens", prompt.ids.len().into()),
                ("text", text(&prompt.ids)),
                ("negative", negative),
            ];
            self.app.log.show("prompt", &fields);
        }
    }
}

/// How answers are sampled, after presets, keys and limits had their say.
fn params(job: &JobOptions, n: usize) -> Value {
    let banned: Vec<String> = job.banned.iter().map(|rule| format!("{rule:?}")).collect();
    json!({
        "n": n,
        "max_tokens": job.max_new_tokens,
        "min_tokens": job.min_new_tokens,
        "stop": job.stop_strings,
        "stop_token_ids": job.stop_ids,
        "banned_strings": banned,
        "loop_detect_window": job.loop_window,
        "priority": job.priority,
        "timeout": job.timeout.map(|time| time.as_secs_f64()),
        "sampling": job.sampling,
    })
}
