//! What a model's folder says about ranking texts: our file, sentence-transformers', or the fields that
//! others add to `config.json`.
//!
//! A folder that says nothing was not made for it. One that says something that cannot be done as it
//! says is an error: wrong scores would be noticed by nobody.

use std::path::Path;

use pagella_server::{Judge, JudgeForm, RerankFacts, Verdict};
use serde_json::Value;

use super::embedding::{json, module_folder, text};

/// How Qwen3's rerankers are asked, by their model cards.
const QWEN3: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on \
    the Query and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".\
    <|im_end|>\n<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n\
    <Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
/// What they look for unless told.
const QWEN3_INSTRUCTION: &str =
    "Given a web search query, retrieve relevant passages that answer the query";

/// What a folder says. What is wrong with it is told to whoever wants texts ranked.
pub fn read(dir: &Path) -> RerankFacts {
    match checked(dir) {
        Ok(judge) => RerankFacts { judge, problem: None },
        Err(problem) => RerankFacts { judge: None, problem: Some(problem) },
    }
}

fn checked(dir: &Path) -> Result<Option<Judge>, String> {
    if let Some(judge) = own(dir)? {
        return Ok(Some(judge));
    }
    if let Some(modules) = json(dir, "modules.json")?
        && let Some(judge) = logit_score(dir, &modules)?
    {
        return Ok(Some(judge));
    }
    json(dir, "config.json")?.map_or(Ok(None), |config| classifier(&config))
}

/// `[rerank]` of `model.toml`, which counts more than other files.
fn own(dir: &Path) -> Result<Option<Judge>, String> {
    let Some(text) = text(dir, "model.toml")? else { return Ok(None) };
    let file: toml::Table = text.parse().map_err(|error| format!("model.toml: {error}"))?;
    let Some(table) = file.get("rerank") else { return Ok(None) };
    let wrong = |what: &str| format!("model.toml: rerank.{what}");
    let verdict = |name: &str| match table.get(name) {
        Some(toml::Value::String(text)) => Ok(Verdict::Text(text.clone())),
        Some(toml::Value::Integer(id)) => {
            let id = u32::try_from(*id).map_err(|_| wrong(&format!("{name} is no token id")))?;
            Ok(Verdict::Id(id))
        }
        _ => Err(wrong(&format!("{name} must be the text or the id of a token"))),
    };
    let string = |name: &str| match table.get(name) {
        None => Ok(None),
        Some(toml::Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(wrong(&format!("{name} must be a text"))),
    };
    let form = match string("prompt")? {
        None => JudgeForm::Template,
        Some(text) if text.contains("{query}") && text.contains("{document}") => {
            JudgeForm::Text(text)
        }
        Some(_) => return Err(wrong("prompt must hold {query} and {document}")),
    };
    let instruction = string("instruction")?;
    Ok(Some(Judge { yes: verdict("yes")?, no: verdict("no")?, form, instruction }))
}

/// A module of sentence-transformers that compares two logits.
fn logit_score(dir: &Path, modules: &Value) -> Result<Option<Judge>, String> {
    let kind = |module: &Value| {
        let kind = module.get("type").and_then(Value::as_str).unwrap_or_default();
        kind.rsplit('.').next().unwrap_or_default().to_owned()
    };
    let modules = modules.as_array().map_or(&[][..], Vec::as_slice);
    let Some(module) = modules.iter().find(|module| kind(module) == "LogitScore") else {
        return Ok(None);
    };
    if let Some(other) =
        modules.iter().map(kind).find(|kind| !["Transformer", "LogitScore"].contains(&&**kind))
    {
        return Err(format!("modules.json has a module {other:?}, which is not built"));
    }
    let name = format!("{}/config.json", module_folder(module)?);
    let config = json(dir, &name)?.ok_or_else(|| format!("there is no {name}"))?;
    let id = |key: &str| config.get(key).and_then(Value::as_u64).and_then(|id| id.try_into().ok());
    let (Some(yes), Some(no)) = (id("true_token_id"), id("false_token_id")) else {
        return Err(format!("{name}: scores need true_token_id and false_token_id"));
    };
    let (yes, no) = (Verdict::Id(yes), Verdict::Id(no));
    let instruction = default_prompt(dir)?;
    Ok(Some(Judge { yes, no, form: JudgeForm::Template, instruction }))
}

/// The prompt that counts where none is named.
fn default_prompt(dir: &Path) -> Result<Option<String>, String> {
    let Some(config) = json(dir, "config_sentence_transformers.json")? else { return Ok(None) };
    let name = config.get("default_prompt_name").and_then(Value::as_str);
    let prompt = name.and_then(|name| config.get("prompts")?.get(name)?.as_str());
    Ok(prompt.map(str::to_owned))
}

/// `classifier_from_token`: the tokens of no and yes, of models that are asked as Qwen3's are.
fn classifier(config: &Value) -> Result<Option<Judge>, String> {
    let Some(tokens) = config.get("classifier_from_token") else { return Ok(None) };
    let texts: Option<Vec<&str>> =
        tokens.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    let Some([no, yes]) = texts.as_deref() else {
        return Err("config.json: classifier_from_token must be the texts of two tokens".to_owned());
    };
    if config.get("is_original_qwen3_reranker") != Some(&Value::Bool(true)) {
        return Err(
            "config.json says with which tokens the model judges and not how it is asked: \
                    add [rerank] to model.toml"
                .to_owned(),
        );
    }
    let verdict = |text: &str| Verdict::Text(text.to_owned());
    Ok(Some(Judge {
        yes: verdict(yes),
        no: verdict(no),
        form: JudgeForm::Text(QWEN3.to_owned()),
        instruction: Some(QWEN3_INSTRUCTION.to_owned()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::serve::embedding::tests::folder;

    const MODULES: &str = r#"[
        {"idx": 0, "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
        {"idx": 1, "path": "1_LogitScore",
         "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"}]"#;

    #[test]
    fn every_file_that_says_how_a_model_judges_is_read() {
        let scored = folder(&[
            ("modules.json", MODULES),
            ("1_LogitScore/config.json", r#"{"true_token_id": 7, "false_token_id": 3}"#),
            (
                "config_sentence_transformers.json",
                r#"{"prompts": {"web": "Find it"}, "default_prompt_name": "web"}"#,
            ),
        ]);
        let judge = read(scored.path()).judge.unwrap();
        assert_eq!((judge.yes, judge.no), (Verdict::Id(7), Verdict::Id(3)));
        assert_eq!(
            (judge.form, judge.instruction.as_deref()),
            (JudgeForm::Template, Some("Find it"))
        );
        let config =
            r#"{"classifier_from_token": ["no", "yes"], "is_original_qwen3_reranker": true}"#;
        let judge = read(folder(&[("config.json", config)]).path()).judge.unwrap();
        assert_eq!(judge.yes, Verdict::Text("yes".into()));
        assert!(matches!(judge.form, JudgeForm::Text(text) if text.contains("{instruction}")));
        let ours = "[rerank]\nyes = \"ja\"\nno = 5\nprompt = \"{query}?{document}!\"\n";
        let judge = read(folder(&[("model.toml", ours), ("config.json", config)]).path()).judge;
        let form = JudgeForm::Text("{query}?{document}!".into());
        let (yes, no) = (Verdict::Text("ja".into()), Verdict::Id(5));
        assert_eq!(judge, Some(Judge { yes, no, form, instruction: None }));
    }

    #[test]
    fn a_folder_that_says_nothing_is_no_judge_and_a_wrong_one_says_why() {
        let facts = read(folder(&[("config.json", "{}")]).path());
        assert!(facts.judge.is_none() && facts.problem.is_none());
        let scored =
            |config| folder(&[("modules.json", MODULES), ("1_LogitScore/config.json", config)]);
        for dir in [
            scored(r#"{"true_token_id": 7, "false_token_id": null}"#),
            folder(&[("modules.json", MODULES)]),
            folder(&[("modules.json", &MODULES.replace("\"1_LogitScore\"", "\"../x\""))]),
            folder(&[("config.json", r#"{"classifier_from_token": ["yes"]}"#)]),
            folder(&[("config.json", r#"{"classifier_from_token": ["no", "yes"]}"#)]),
            folder(&[("model.toml", "[rerank]\nyes = \"a\"\n")]),
            folder(&[("model.toml", "[rerank]\nyes = 1\nno = 2\nprompt = \"{query}\"\n")]),
        ] {
            let facts = read(dir.path());
            assert!(facts.judge.is_none() && facts.problem.is_some());
        }
    }
}
