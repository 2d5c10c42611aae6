//! What a model's folder says about vectors of texts: the files of sentence-transformers, or ours.
//!
//! A folder that says nothing was not made for them. One that says something that cannot be done as it
//! says is an error: wrong vectors would be noticed by nobody.

use std::io::Read;
use std::path::Path;

use pagella_engine::Pooling;
use pagella_server::EmbeddingFacts;
use serde_json::Value;

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Where sentence-transformers describes pooling unless stated.
const POOLING_DIR: &str = "1_Pooling";

/// What a folder says. What is wrong with it is told to whoever asks for vectors.
pub fn read(dir: &Path) -> EmbeddingFacts {
    let wrong = |problem| EmbeddingFacts { problem: Some(problem), ..EmbeddingFacts::default() };
    checked(dir).unwrap_or_else(wrong)
}

fn checked(dir: &Path) -> Result<EmbeddingFacts, String> {
    let mut facts = EmbeddingFacts::default();
    if let Some(modules) = json(dir, "modules.json")? {
        facts.pooling = pooling_of(dir, &modules)?;
        facts.normalize = Some(modules_of(&modules).any(|(kind, _)| kind == "Normalize"));
    } else if json(dir, &format!("{POOLING_DIR}/config.json"))?.is_some() {
        // Some folders come without the list of modules.
        facts.pooling = Some(pooling_in(dir, POOLING_DIR)?);
    }
    if let Some(config) = json(dir, "config_sentence_transformers.json")? {
        let prompts = config.get("prompts").and_then(Value::as_object);
        for (name, prompt) in prompts.into_iter().flatten() {
            if let Some(prompt) = prompt.as_str() {
                facts.prompts.insert(name.clone(), prompt.to_owned());
            }
        }
        let default = config.get("default_prompt_name").and_then(Value::as_str);
        facts.default_prompt = default.map(str::to_owned);
    }
    if let Some(config) = json(dir, "config.json")? {
        let listed = config.get("matryoshka_dimensions").and_then(Value::as_array);
        let any = config.get("is_matryoshka") == Some(&Value::Bool(true));
        facts.dimensions = match listed {
            Some(list) => Some(numbers(list)),
            None => any.then(Vec::new),
        };
    }
    own(dir, &mut facts)?;
    Ok(facts)
}

fn numbers(list: &[Value]) -> Vec<usize> {
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    list.iter().filter_map(number).collect()
}

/// A file of the folder, if it is there.
pub(super) fn text(dir: &Path, name: &str) -> Result<Option<String>, String> {
    let file = match std::fs::File::open(dir.join(name)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{name}: {error}")),
    };
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| format!("{name}: {error}"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{name} has more than {FILE_BYTES_MAX} bytes"));
    }
    Ok(Some(text))
}

/// The same as JSON.
pub(super) fn json(dir: &Path, name: &str) -> Result<Option<Value>, String> {
    let parse = |text: String| serde_json::from_str(&text).map_err(|e| format!("{name}: {e}"));
    text(dir, name)?.map(parse).transpose()
}

/// The pooling among the modules of a model; a module that would change vectors further is an error.
fn pooling_of(dir: &Path, modules: &Value) -> Result<Option<Pooling>, String> {
    let mut found = None;
    for (kind, module) in modules_of(modules) {
        match kind {
            "Transformer" | "Normalize" => {}
            "Pooling" => found = Some(pooling_in(dir, module_folder(module)?)?),
            other => {
                return Err(format!("modules.json has a module {other:?}, which is not built"));
            }
        }
    }
    Ok(found)
}

/// The pooling that a module's folder describes.
fn pooling_in(dir: &Path, folder: &str) -> Result<Pooling, String> {
    let name = format!("{folder}/config.json");
    let config = json(dir, &name)?.ok_or_else(|| format!("there is no {name}"))?;
    let pooling = mode(&config).ok_or_else(|| {
        format!("{name}: pooling must be exactly one of mean, first and last token")
    })?;
    // The last token is the same whether or not those before it count.
    if config.get("include_prompt") == Some(&Value::Bool(false)) && pooling != Pooling::Last {
        return Err(format!("{name}: include_prompt must be true"));
    }
    Ok(pooling)
}

/// The modules of a list, by their kinds.
fn modules_of(modules: &Value) -> impl Iterator<Item = (&str, &Value)> {
    modules.as_array().into_iter().flatten().map(|module| {
        let kind = module.get("type").and_then(Value::as_str).unwrap_or_default();
        (kind.rsplit('.').next().unwrap_or_default(), module)
    })
}

/// The folder of a module: one of the model's own.
pub(super) fn module_folder(module: &Value) -> Result<&str, String> {
    let path = module.get("path").and_then(Value::as_str).unwrap_or_default();
    if path.is_empty() || path.contains(['/', '\\', ':']) || path.starts_with('.') {
        return Err(format!("modules.json names a folder {path:?}"));
    }
    Ok(path)
}

/// The one way of pooling that is switched on, or that is named.
fn mode(config: &Value) -> Option<Pooling> {
    if let Some(name) = config.get("pooling_mode").and_then(Value::as_str) {
        return match name {
            "mean" => Some(Pooling::Mean),
            "cls" => Some(Pooling::First),
            "lasttoken" => Some(Pooling::Last),
            _ => None,
        };
    }
    let flags = [
        ("pooling_mode_mean_tokens", Some(Pooling::Mean)),
        ("pooling_mode_cls_token", Some(Pooling::First)),
        ("pooling_mode_lasttoken", Some(Pooling::Last)),
        ("pooling_mode_max_tokens", None),
        ("pooling_mode_mean_sqrt_len_tokens", None),
        ("pooling_mode_weightedmean_tokens", None),
    ];
    let on = |(name, _): &(&str, _)| config.get(*name) == Some(&Value::Bool(true));
    let mut chosen = flags.into_iter().filter(on);
    let (first, second) = (chosen.next(), chosen.next());
    first.filter(|_| second.is_none()).and_then(|(_, pooling)| pooling)
}

/// `[embedding]` of `model.toml`, which counts more than other files.
fn own(dir: &Path, facts: &mut EmbeddingFacts) -> Result<(), String> {
    let Some(text) = text(dir, "model.toml")? else { return Ok(()) };
    let file: toml::Table = text.parse().map_err(|error| format!("model.toml: {error}"))?;
    let Some(table) = file.get("embedding") else { return Ok(()) };
    if let Some(pooling) = table.get("pooling") {
        let known = pooling.as_str().and_then(Pooling::from_name);
        let problem = || "model.toml: embedding.pooling must be mean, cls or last".to_owned();
        facts.pooling = Some(known.ok_or_else(problem)?);
    }
    match table.get("normalize") {
        None => {}
        Some(toml::Value::Boolean(on)) => facts.normalize = Some(*on),
        Some(_) => return Err("model.toml: embedding.normalize must be true or false".to_owned()),
    }
    match table.get("dimensions") {
        None => {}
        Some(toml::Value::Boolean(any)) => facts.dimensions = any.then(Vec::new),
        Some(toml::Value::Array(list)) => {
            let number = |value: &toml::Value| value.as_integer().and_then(|n| n.try_into().ok());
            facts.dimensions = Some(list.iter().filter_map(number).collect());
        }
        Some(_) => return Err("model.toml: embedding.dimensions must be a list".to_owned()),
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A model's folder with these files.
    pub fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    const MODULES: &str = r#"[
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]"#;

    #[test]
    fn files_of_sentence_transformers_are_read() {
        let dir = folder(&[
            ("modules.json", MODULES),
            (
                "1_Pooling/config.json",
                r#"{"pooling_mode_lasttoken": true, "pooling_mode_cls_token": false}"#,
            ),
            (
                "config_sentence_transformers.json",
                r#"{"prompts": {"query": "Q: "}, "default_prompt_name": null}"#,
            ),
            ("config.json", r#"{"matryoshka_dimensions": [64, 128]}"#),
        ]);
        let facts = read(dir.path());
        assert_eq!((facts.pooling, facts.normalize), (Some(Pooling::Last), Some(true)));
        assert_eq!(facts.prompts["query"], "Q: ");
        assert_eq!((facts.dimensions, facts.default_prompt), (Some(vec![64, 128]), None));
    }

    #[test]
    fn our_file_counts_more_and_no_file_says_nothing() {
        let dir = folder(&[("model.toml", "[embedding]\npooling = \"mean\"\ndimensions = true\n")]);
        let facts = read(dir.path());
        assert_eq!((facts.pooling, facts.dimensions), (Some(Pooling::Mean), Some(vec![])));
        let facts = read(folder(&[("config.json", "{}")]).path());
        assert!(facts.pooling.is_none() && facts.dimensions.is_none());
    }

    #[test]
    fn pooling_is_read_in_every_form_and_without_a_list_of_modules() {
        for (config, expected) in [
            (r#"{"pooling_mode": "lasttoken", "include_prompt": false}"#, Pooling::Last),
            (r#"{"pooling_mode": "mean", "include_prompt": true}"#, Pooling::Mean),
            (r#"{"pooling_mode_cls_token": true}"#, Pooling::First),
        ] {
            let facts = read(folder(&[("1_Pooling/config.json", config)]).path());
            assert_eq!((facts.pooling, facts.normalize), (Some(expected), None), "{config}");
            let plain = MODULES.replace("models.Normalize", "models.Transformer");
            let dir = folder(&[("modules.json", &plain), ("1_Pooling/config.json", config)]);
            let facts = read(dir.path());
            assert_eq!((facts.pooling, facts.normalize), (Some(expected), Some(false)), "{config}");
        }
    }

    #[test]
    fn what_cannot_be_done_as_it_says_is_an_error() {
        let pooling = |text| folder(&[("modules.json", MODULES), ("1_Pooling/config.json", text)]);
        let dense = MODULES.replace("models.Normalize", "models.Dense");
        for dir in [
            folder(&[("modules.json", MODULES)]),
            folder(&[("modules.json", "{")]),
            folder(&[
                ("modules.json", &dense),
                ("1_Pooling/config.json", r#"{"pooling_mode_mean_tokens": true}"#),
            ]),
            folder(&[("modules.json", &MODULES.replace("1_Pooling", "../1_Pooling"))]),
            pooling("{}"),
            pooling(r#"{"pooling_mode": "max"}"#),
            pooling(r#"{"pooling_mode": "mean", "include_prompt": false}"#),
            pooling(r#"{"pooling_mode_max_tokens": true}"#),
            pooling(r#"{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true}"#),
            folder(&[("model.toml", "[embedding]\npooling = \"max\"\n")]),
        ] {
            assert!(read(dir.path()).problem.is_some());
        }
    }
}
