//! Bodies as programs of others send them by default: they are answered.

use pagella_server::settings::ApiServer;
use serde_json::{Value, json};

use crate::support::{API, TestServer, demo, keys, settings};

const MESSAGES: &str =
    r#"[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]"#;

fn server() -> TestServer {
    let mut settings = settings();
    settings.network.api_servers.push(ApiServer::Kobold);
    TestServer::start(settings, keys(), Some(demo(16)))
}

fn messages() -> Value {
    serde_json::from_str(MESSAGES).unwrap()
}

/// A body with more on top.
fn with(body: &Value, more: Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn answered(server: &TestServer, path: &str, bodies: &[Value]) {
    let client = server.client(API);
    for body in bodies {
        let answer = client.post(path, body);
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
    }
    server.wait_idle();
}

/// What SillyTavern sends as text completion, whatever the server is called there.
fn silly_tavern() -> Value {
    json!({
        "prompt": "CSS is", "max_new_tokens": 4, "max_tokens": 4, "temperature": 0.7, "top_p": 0.5,
        "typical_p": 1, "typical": 1, "sampler_seed": -1, "min_p": 0, "repetition_penalty": 1.2,
        "frequency_penalty": 0, "presence_penalty": 0, "top_k": 40, "skew": 0, "min_tokens": 0,
        "add_bos_token": true, "smoothing_factor": 0, "smoothing_curve": 1, "dry_allowed_length": 2,
        "dry_multiplier": 0, "dry_base": 1.75, "dry_penalty_last_n": 0, "max_tokens_second": 0,
        "dry_sequence_breakers": "[\"\\n\",\":\",\"\\\"\",\"*\"]", "stopping_strings": ["\nYou:"],
        "stop": ["\nYou:"], "truncation_length": 8192, "ban_eos_token": false,
        "skip_special_tokens": true, "include_reasoning": true, "top_a": 0, "tfs": 1,
        "mirostat_mode": 0, "mirostat_tau": 5, "mirostat_eta": 0.1, "custom_token_bans": "",
        "banned_strings": [], "api_type": "tabby", "api_server": "http://127.0.0.1:5000/",
        "xtc_threshold": 0.1, "xtc_probability": 0, "nsigma": 0, "top_n_sigma": 0, "min_keep": 0,
        "adaptive_target": -0.01, "adaptive_decay": 0.9,
    })
}

/// What it adds for all servers but vLLM and Aphrodite.
fn silly_tavern_more() -> Value {
    json!({
        "rep_pen": 1.2, "rep_pen_range": 0, "repetition_penalty_range": 0, "seed": -1,
        "guidance_scale": 1, "negative_prompt": "", "grammar_string": "", "repeat_penalty": 1.2,
        "tfs_z": 1, "repeat_last_n": 0, "n_predict": 4, "num_predict": 4, "num_ctx": 8192,
        "mirostat": 0, "ignore_eos": false, "rep_pen_slope": 1,
    })
}

#[test]
fn silly_tavern_is_answered_as_it_asks_tabby() {
    let server = server();
    let body = with(&silly_tavern(), silly_tavern_more());
    let tabby = json!({"repetition_decay": 0, "temperature_last": true, "speculative_ngram": false,
        "json_schema": {}, "n": 1});
    let body = with(&body, tabby);
    let ranges = json!({"penalty_range": 0, "cfg_scale": 1.0, "grammar": "", "logit_bias": {}});
    answered(&server, "/v1/completions", &[body.clone(), with(&body, ranges)]);
    // The ranges are all 0: that is one value.
    let named = server.client(API).post("/v1/completions", &body);
    let ignored = named.header("x-ignored-fields").unwrap_or_default();
    assert!(!ignored.contains("speculative_ngram") && !ignored.contains("rep_pen"), "{ignored}");
}

#[test]
fn silly_tavern_is_answered_as_it_asks_other_servers() {
    let server = server();
    let body = with(&silly_tavern(), silly_tavern_more());
    let order = [
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "dry",
        "temperature",
        "dynamic_temperature",
        "quadratic_sampling",
        "top_n_sigma",
        "top_k",
        "top_p",
        "typical_p",
        "epsilon_cutoff",
        "eta_cutoff",
        "tfs",
        "top_a",
        "min_p",
        "adaptive_p",
        "mirostat",
        "xtc",
        "encoder_repetition_penalty",
        "no_repeat_ngram",
    ];
    let webui = json!({"min_length": 0, "num_beams": 1, "length_penalty": 1, "early_stopping": false,
        "sampler_priority": order, "epsilon_cutoff": 0, "eta_cutoff": 0, "do_sample": true,
        "encoder_repetition_penalty": 1, "no_repeat_ngram_size": 0, "penalty_alpha": 0,
        "temperature_last": true});
    let llama = json!({"samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "tfs_z",
        "typical_p", "top_p", "min_p", "xtc", "temperature", "adaptive_p"], "logit_bias": [],
        "grammar": "", "cache_prompt": true, "n": 1});
    let older = json!({"samplers": ["top_k", "tfs_z", "typical_p", "top_p", "min_p", "temperature"],
        "logit_bias": [[5, false]]});
    let vllm = json!({"n": 1, "ignore_eos": false, "spaces_between_special_tokens": true});
    let aphrodite = json!({"n": 1, "ignore_eos": false, "guided_grammar": "", "guided_json": {},
        "early_stopping": false, "include_stop_str_in_output": false, "custom_token_bans": [],
        "no_repeat_ngram_size": 0, "temperature_last": true, "epsilon_cutoff": 0, "eta_cutoff": 0});
    let dynamic = json!({"dynamic_temperature": true, "dynatemp_low": 0.5, "dynatemp_high": 1.5,
        "dynatemp_range": 0.5, "dynatemp_exponent": 1});
    let bodies = [
        with(&body, webui),
        with(&body, llama),
        with(&body, older),
        with(&silly_tavern(), vllm),
        with(&silly_tavern(), aphrodite),
        with(&body, dynamic),
    ];
    answered(&server, "/v1/completions", &bodies);
    let kobold = json!({"sampler_order": [6, 0, 1, 3, 4, 2, 5], "grammar": "", "trim_stop": true,
        "dry_sequence_breakers": ["\n", ":", "\"", "*"], "json_schema": {}});
    answered(&server, "/api/v1/generate", &[with(&body, kobold)]);
}

#[test]
fn silly_tavern_is_answered_as_it_asks_for_chat_and_kobold() {
    let server = server();
    let chat = json!({
        "messages": messages(), "model": "demo", "temperature": 1, "frequency_penalty": 0,
        "presence_penalty": 0, "top_p": 1, "max_tokens": 4, "stream": false, "logit_bias": {},
        "stop": [], "chat_completion_source": "custom", "n": 1, "user_name": "You", "char_name": "A",
        "group_names": [], "include_reasoning": true, "reasoning_effort": "medium",
        "enable_web_search": false, "request_images": false, "custom_url": "", "seed": -1,
        "top_k": 0, "min_p": 0, "top_a": 0, "repetition_penalty": 1, "json_schema": null,
        "custom_prompt_post_processing": "", "verbosity": "", "tools": [],
    });
    answered(&server, "/v1/chat/completions", &[chat]);
    let kobold = json!({
        "prompt": "CSS is", "gui_settings": false, "sampler_order": [6, 0, 1, 2, 3, 4, 5],
        "max_context_length": 2048, "max_length": 4, "rep_pen": 1.1, "rep_pen_range": 600,
        "rep_pen_slope": 0, "temperature": 1, "tfs": 1, "top_a": 1, "top_k": 0, "top_p": 1,
        "min_p": 0, "typical": 1, "use_world_info": false, "singleline": false, "streaming": false,
        "stop_sequence": ["\nYou:"], "can_abort": true, "mirostat": 0, "mirostat_tau": 5,
        "mirostat_eta": 0.1, "use_default_badwordsids": false, "grammar": "", "api_server": "",
    });
    answered(&server, "/api/v1/generate", &[kobold]);
}

#[test]
fn kobold_lite_is_answered() {
    let server = server();
    let body = json!({
        "n": 1, "max_context_length": 8192, "max_length": 4, "rep_pen": 1.05, "temperature": 0.75,
        "top_p": 0.92, "top_k": 100, "top_a": 0, "typical": 1, "tfs": 1, "rep_pen_range": 360,
        "rep_pen_slope": 0.7, "sampler_order": [6, 0, 1, 3, 4, 2, 5], "memory": "",
        "trim_stop": true, "genkey": "KCPP8221", "min_p": 0, "dynatemp_range": 0,
        "dynatemp_exponent": 1, "smoothing_factor": 0, "smoothing_curve": 1, "nsigma": 0,
        "banned_tokens": [], "render_special": false, "logprobs": false, "presence_penalty": 0,
        "replace_instruct_placeholders": true, "logit_bias": {}, "adaptive_target": -1,
        "adaptive_decay": 0.9, "prompt": "CSS is", "quiet": true, "use_default_badwordsids": false,
        "bypass_eos": false, "stop_sequence": ["{{[INPUT]}}", "{{[OUTPUT]}}"], "images": [],
        "grammar": "", "grammar_retain_state": false, "xtc_threshold": 0.2, "xtc_probability": 0,
        "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": 320,
        "dry_sequence_breakers": ["\n", ":", "\"", "*"], "mirostat": 0, "mirostat_tau": 5,
        "mirostat_eta": 0.1, "banned_strings": [], "using_openai_tools": false,
    });
    let slower = json!({"rep_pen_slope": 0.8, "sampler_order": [6, 5, 0, 1, 3, 4, 2]});
    answered(&server, "/api/v1/generate", &[body.clone(), with(&body, slower)]);
    answered(&server, "/api/extra/generate/stream", &[body]);
}

#[test]
fn clients_of_text_generation_webui_are_answered() {
    let server = server();
    let body = json!({
        "prompt": "CSS is", "max_tokens": 4, "preset": null, "dynamic_temperature": false,
        "dynatemp_low": 1.0, "dynatemp_high": 1.0, "dynatemp_exponent": 1.0, "smoothing_factor": 0,
        "smoothing_curve": 1, "min_p": 0, "top_k": 0, "typical_p": 1, "xtc_threshold": 0.1,
        "xtc_probability": 0, "epsilon_cutoff": 0, "eta_cutoff": 0, "tfs": 1, "top_a": 0,
        "top_n_sigma": 0, "dry_multiplier": 0, "dry_allowed_length": 2, "dry_base": 1.75,
        "repetition_penalty": 1, "encoder_repetition_penalty": 1, "no_repeat_ngram_size": 0,
        "repetition_penalty_range": 1024, "penalty_alpha": 0, "guidance_scale": 1,
        "mirostat_mode": 0, "mirostat_tau": 5, "mirostat_eta": 0.1, "prompt_lookup_num_tokens": 0,
        "max_tokens_second": 0, "do_sample": true, "temperature_last": false, "seed": -1,
        "sampler_priority": null, "custom_token_bans": "", "negative_prompt": "",
        "dry_sequence_breakers": "\"\\n\", \":\", \"\\\"\", \"*\"", "grammar_string": "",
        "truncation_length": 0, "auto_max_new_tokens": false, "ban_eos_token": false,
        "add_bos_token": true, "skip_special_tokens": true, "static_cache": false, "stop": null,
        "suffix": null, "echo": false, "logprobs": null, "best_of": 1, "logit_bias": null, "n": 1,
        "user": null, "stream": false,
    });
    let priority = json!({"sampler_priority": "repetition_penalty\ntemperature\ntop_k\nxtc",
        "dynatemp_low": 0.1, "dynatemp_high": 1.0});
    answered(&server, "/v1/completions", &[body.clone(), with(&body, priority)]);
    // Switched off, the bounds of a dynamic temperature mean nothing.
    let text = |body: &Value| server.client(API).post("/v1/completions", body).good();
    let pinned = with(&body, json!({"seed": 4}));
    let bounds = with(&pinned, json!({"dynatemp_low": 0.1, "dynatemp_high": 5.0}));
    assert_eq!(text(&pinned)["choices"], text(&bounds)["choices"]);
}

#[test]
fn chat_programs_are_answered() {
    let server = server();
    let open_webui = json!({
        "stream": false, "model": "demo", "messages": messages(), "temperature": 0.8, "top_p": 0.9,
        "max_tokens": 4, "frequency_penalty": 0, "presence_penalty": 0, "seed": 0, "stop": [],
        "logit_bias": {}, "top_k": 40, "min_p": 0, "repeat_penalty": 1.1, "repeat_last_n": 64,
        "tfs_z": 1, "mirostat": 0, "mirostat_eta": 0.1, "mirostat_tau": 5, "num_ctx": 2048,
        "num_keep": 24, "num_batch": 512, "use_mmap": true, "num_thread": 8, "keep_alive": "5m",
        "stream_options": {"include_usage": true}, "metadata": {}, "reasoning_effort": "",
    });
    let llama_page = json!({
        "messages": messages(), "stream": false, "reasoning_format": "auto", "temperature": 0.8,
        "reasoning_control": true, "max_tokens": 4, "dynatemp_range": 0, "dynatemp_exponent": 1,
        "top_k": 40, "top_p": 0.95, "min_p": 0.05, "xtc_probability": 0, "xtc_threshold": 0.1,
        "typ_p": 1, "repeat_last_n": 64, "repeat_penalty": 1, "presence_penalty": 0,
        "frequency_penalty": 0, "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2,
        "dry_penalty_last_n": -1, "samplers": ["top_k", "typ_p", "top_p", "min_p", "temperature"],
        "backend_sampling": false, "timings_per_token": false,
    });
    let letters = json!({"samplers": "edskypmxt", "top_n_sigma": -1, "adaptive_target": -1.0,
        "cache_prompt": true, "n_keep": 0, "id_slot": -1, "n_probs": 0, "min_keep": 0, "grammar": "",
        "typical_p": 1.0, "ignore_eos": false, "logit_bias": []});
    let lm_studio = json!({"model": "demo", "messages": messages(), "temperature": 0.7,
        "max_tokens": 4, "stream": false, "top_k": 40, "repeat_penalty": 1.1, "min_p": 0.05,
        "draft_model": "", "ttl": 300});
    let proceed = json!({"messages": messages(), "model": "demo", "max_tokens": 4, "stream": false,
        "temperature": 0.5, "stop": [], "presence_penalty": 0, "frequency_penalty": 0, "tools": [],
        "prediction": {"type": "content", "content": "Hi"}});
    let bodies = [open_webui, with(&llama_page, letters), llama_page, lm_studio, proceed];
    answered(&server, "/v1/chat/completions", &bodies);
    let fill = json!({"prompt": "CSS is", "model": "demo", "max_tokens": 4, "temperature": 0.01,
        "stop": ["\n\n", "```"], "stream": false, "suffix": "", "presence_penalty": 0});
    answered(&server, "/v1/completions", &[fill]);
}

#[test]
fn agnai_and_risu_are_answered() {
    let server = server();
    let agnai = json!({
        "prompt": "CSS is", "max_new_tokens": 4, "do_sample": true, "temperature": 0.8, "top_p": 0.9,
        "typical_p": 1, "repetition_penalty": 1.08, "encoder_repetition_penalty": 1, "top_k": 30,
        "min_length": 0, "no_repeat_ngram_size": 0, "num_beams": 1, "penalty_alpha": 0, "min_p": 0,
        "length_penalty": 1, "early_stopping": false, "add_bos_token": true, "ban_eos_token": false,
        "truncation_length": 2048, "skip_special_tokens": true, "stopping_strings": ["\nYou:"],
        "stop": ["\nYou:"], "tfs": 1, "top_a": 0, "mirostat_mode": 0, "mirostat_tau": 0,
        "mirostat_eta": 0, "repetition_penalty_range": 0, "frequency_penalty": 0, "seed": -1,
        "presence_penalty": 0, "custom_token_bans": "", "smoothing_factor": 0, "smoothing_curve": 1,
        "epsilon_cutoff": 0, "eta_cutoff": 0, "dynatemp_range": 0, "dynatemp_exponent": 1,
        "xtc_threshold": 0, "xtc_probability": 0, "negative_prompt": "", "guidance_scale": 1,
        "max_context_length": 2048, "grammar": "", "stream": false,
    });
    let risu = json!({
        "prompt": "CSS is", "max_new_tokens": 4, "do_sample": true, "temperature": 0.9, "top_p": 0.9,
        "typical_p": 1, "repetition_penalty": 1.1, "encoder_repetition_penalty": 1, "top_k": 0,
        "min_length": 0, "no_repeat_ngram_size": 0, "num_beams": 1, "penalty_alpha": 0,
        "length_penalty": 1, "early_stopping": false, "truncation_length": 4000,
        "ban_eos_token": false, "stopping_strings": [], "seed": -1, "add_bos_token": true,
        "top_a": 0, "min_p": 0, "skip_special_tokens": true, "formatting": {"header": ""},
    });
    answered(&server, "/v1/completions", &[agnai, risu]);
    let kobold = json!({"prompt": "CSS is", "temperature": 0.8, "top_p": 0.9, "max_length": 4,
        "max_context_length": 2048, "n": 1, "rep_pen": 1.1, "top_k": 0, "top_a": 0, "typical": 1,
        "tfs": 1, "rep_pen_range": 1024, "rep_pen_slope": 0.9, "sampler_order": [6, 0, 1, 3, 4, 2, 5]});
    answered(&server, "/api/v1/generate", &[kobold]);
}
