//! Opening a model for the server: from an engine to the parts that the server knows.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};

use pagella::{Engine, EngineBuilder};
use pagella_formats::LinearKind;
use pagella_server::{App, ModelFacts, ModelParts, ServedModel, Slot};

/// How often progress is logged, in parts of the whole.
const PROGRESS_PARTS: u64 = 10;

/// The name under which clients know a model: a hub id as it is, else the last part of its path.
pub fn model_id(model: &str, dir: &Path) -> String {
    let last = dir.file_name().and_then(|name| name.to_str());
    match model {
        _ if Path::new(model).exists() => last.unwrap_or(model).to_owned(),
        name => name.to_owned(),
    }
}

/// Loads a model into the server, or notes that it failed.
pub fn load(app: &Arc<App>, builder: EngineBuilder, id: String) {
    let begun = Instant::now();
    app.log.info("load", &[("model", id.as_str().into()), ("state", "started".into())]);
    let mut reported = 0;
    let opened = builder.open_with(&mut |progress| {
        let part = progress.bytes_done * PROGRESS_PARTS / progress.bytes_total.max(1);
        if part > reported {
            reported = part;
            let percent = part * 100 / PROGRESS_PARTS;
            app.log.info("load", &[("model", id.as_str().into()), ("percent", percent.into())]);
        }
        ControlFlow::Continue(())
    });
    let served = opened
        .map_err(|error| error.to_string())
        .and_then(|engine| parts(&engine, &id).map_err(|error| error.to_string()))
        .and_then(|parts| ServedModel::new(parts).map_err(|error| error.to_string()));
    let (state, slot) = match served {
        Ok(model) => ("finished".to_owned(), Slot::Loaded(Arc::new(model))),
        Err(error) => (format!("failed: {error}"), Slot::Failed { id: id.clone() }),
    };
    app.model.set(slot);
    let seconds = begun.elapsed().as_secs_f64();
    let fields = [("model", id.into()), ("state", state.into()), ("seconds", seconds.into())];
    app.log.info("load", &fields);
}

fn parts(engine: &Engine, id: &str) -> Result<ModelParts, pagella::Error> {
    let facts = engine.facts();
    let kinds = facts.memory.kinds.iter();
    let main = kinds.max_by_key(|kind| kind.share.params);
    let modified =
        std::fs::metadata(facts.dir.join("config.json")).and_then(|meta| meta.modified());
    let created = modified.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(ModelParts {
        id: id.to_owned(),
        worker: engine.worker().clone(),
        tokenizer: engine.tokenizer().clone(),
        template: engine.chat_template().cloned(),
        sampling: engine.default_sampling().clone(),
        vocab: engine.vocab(),
        facts: ModelFacts {
            cache_tokens: facts.cache_tokens,
            cache_mode: facts.cache.name().to_owned(),
            device: facts.device.clone(),
            quantization: main.map(|share| kind_name(share.kind).to_owned()),
            bits_per_weight: Some(facts.memory.layers.bits_per_weight()),
            weight_bytes: Some(facts.memory.weights_bytes),
            created: created.map_or(0, |since| since.as_secs()),
            fingerprint: engine.fingerprint()?,
        },
    })
}

/// How most weights are stored, in the words of model cards.
fn kind_name(kind: LinearKind) -> &'static str {
    match kind {
        LinearKind::Exl2 => "exl2",
        LinearKind::Gptq => "gptq",
        LinearKind::Plain => "none",
    }
}
