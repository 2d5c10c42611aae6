//! Incidents of other servers: every line of the list, and the tests that keep it from happening here.
//! A line without a test, and a test that is gone, fail.

use std::path::Path;

/// Tests in one file.
struct Place {
    /// Below `crates`.
    file: &'static str,
    tests: &'static [&'static str],
}

const fn at(file: &'static str, tests: &'static [&'static str]) -> Place {
    Place { file, tests }
}

/// A line: its name, and where its tests are.
type Line = (&'static str, &'static [Place]);

const CANCEL: &str = "pagella-server/tests/server/cancel.rs";
const FIELD: &str = "pagella-server/tests/server/field.rs";
const HARDENING: &str = "pagella-server/tests/server/hardening.rs";
const HOSTILE: &str = "pagella-server/tests/server/hostile.rs";
const HTTP: &str = "pagella-server/tests/server/http.rs";
const LIVENESS: &str = "pagella-server/tests/server/liveness.rs";
const NETWORK: &str = "pagella/tests/cli/network.rs";
const SHAPE: &str = "pagella-server/tests/server/shape.rs";
const TEMPLATE: &str = "pagella-text/tests/text/hostile_templates.rs";
const TOOL: &str = "pagella-conversation/src/tools/tests.rs";
const PAGE: &str = "pagella-server/tests/ui/flows.py";

/// What a client can send to tokenizer, template, constraints, tools and the generator.
const REACHED_BY_CLIENTS: &[Line] = &[
    ("token_count_signedness", &[at(HARDENING, &["oversize_context_is_a_400"])]),
    ("ten_megabyte_single_class_run", &[at(HOSTILE, &["ten_megabyte_single_class_run"])]),
    (
        "control_text_in_user_content",
        &[
            at("pagella-server/tests/server/chat.rs", &["control_text_in_messages_is_inert"]),
            at(
                "pagella-text/tests/text/templates.rs",
                &["c03_hostile_content_is_inert_in_every_template"],
            ),
        ],
    ),
    ("template_has_no_host", &[at(TEMPLATE, &["a_template_has_no_host"])]),
    ("template_variables_cannot_shadow", &[at(HOSTILE, &["template_variables_cannot_shadow"])]),
    (
        "template_time_bombs",
        &[
            at(
                TEMPLATE,
                &["nested_loops_run_out_of_steps", "long_work_in_few_steps_runs_out_of_time"],
            ),
            at(HOSTILE, &["template_time_bombs"]),
        ],
    ),
    ("tojson_extreme_arguments", &[at(TEMPLATE, &["tojson_arguments_are_bounded"])]),
    ("template_message_fuzz", &[at(TEMPLATE, &["random_templates_never_panic"])]),
    (
        "continuation_sentinel_not_forgeable",
        &[at(HOSTILE, &["continuation_sentinel_not_forgeable"])],
    ),
    ("tool_schema_malformed_corpus", &[at(HOSTILE, &["tool_schema_malformed_corpus"])]),
    ("constraint_compile_budget", &[at(SHAPE, &["constraint_compile_budget"])]),
    ("mask_step_budget", &[at(HOSTILE, &["mask_step_budget"])]),
    ("tool_parser_is_linear", &[at(TOOL, &["time_is_linear_in_the_text", "nothing_is_lost"])]),
    (
        "tool_arguments_never_evaluated",
        &[at(TOOL, &["arguments_are_read_however_they_are_written", "what_is_no_call_is_content"])],
    ),
    ("bad_constraint_is_never_ignored", &[at(SHAPE, &["bad_constraint_is_never_ignored"])]),
    (
        "schema_echo_is_bounded",
        &[at("pagella-http/src/wire/error.rs", &["schema_echo_is_bounded"])],
    ),
    ("numeric_fields_property", &[at(FIELD, &["numeric_fields_property"])]),
    ("nan_inf_never_reach_device", &[at(HOSTILE, &["nan_inf_never_reach_device"])]),
    ("fan_out_caps", &[at(FIELD, &["fan_out_caps"])]),
    ("oversize_context_is_a_400", &[at(HARDENING, &["oversize_context_is_a_400"])]),
    ("prefix_cache_timing_isolation", &[at(HARDENING, &["prefix_cache_timing_isolation"])]),
    ("every_id_masked", &[at(HOSTILE, &["every_id_masked"])]),
];

/// The server itself.
const SERVER: &[Line] = &[
    (
        "key_compare_constant_time",
        &[at("pagella-http/src/auth/key.rs", &["key_compare_constant_time"])],
    ),
    (
        "every_route_needs_a_key",
        &[at("pagella-server/tests/server/access.rs", &["every_route_needs_a_key"])],
    ),
    ("role_matrix", &[at("pagella-server/tests/server/access.rs", &["role_matrix"])]),
    (
        "giant_and_slow_http",
        &[
            at(HTTP, &["giant_and_slow_http"]),
            at("pagella-server/tests/server/tls.rs", &["giant_and_slow_http2"]),
        ],
    ),
    ("json_bombs", &[at(HARDENING, &["json_bombs"])]),
    (
        "cancel_in_every_phase",
        &[at(
            CANCEL,
            &[
                "cancel_in_every_phase_body",
                "cancel_in_every_phase_inline_load",
                "cancel_in_every_phase_template",
                "cancel_in_every_phase_compile",
                "cancel_in_every_phase_queue",
                "cancel_in_every_phase_first_chunk",
                "cancel_in_every_phase_middle_chunk",
                "cancel_in_every_phase_last_chunk",
                "cancel_in_every_phase_decode",
                "cancel_in_every_phase_constrained",
                "cancel_in_every_phase_rewind",
                "cancel_in_every_phase_unwritten",
                "cancel_in_every_phase_http2",
            ],
        )],
    ),
    (
        "queued_dead_clients_never_run",
        &[at("pagella-server/tests/server/hang_up.rs", &["queued_dead_clients_never_run"])],
    ),
    (
        "liveness_tells_the_truth",
        &[at(
            LIVENESS,
            &[
                "liveness_tells_the_truth",
                "liveness_tells_the_truth_of_a_device_that_hangs",
                "liveness_tells_the_truth_of_a_dead_engine",
                "liveness_tells_the_truth_of_threads_that_are_stuck",
            ],
        )],
    ),
    ("fetch_is_not_a_proxy", &[at(HARDENING, &["fetch_is_not_a_proxy"])]),
    ("media_bombs", &[at(HARDENING, &["media_bombs"])]),
    (
        "errors_leak_nothing",
        &[
            at("pagella-server/src/generate/ending.rs", &["errors_leak_nothing"]),
            at(HARDENING, &["errors_of_routes_leak_nothing"]),
        ],
    ),
    ("tensors_in_requests_refused", &[at(FIELD, &["tensors_in_requests_refused"])]),
    (
        "no_unauthenticated_internal_sockets",
        &[at(NETWORK, &["no_unauthenticated_internal_sockets"])],
    ),
    ("peer_messages_bounds_checked", &[at(NETWORK, &["peer_messages_bounds_checked"])]),
    ("browser_cannot_drive_open_server", &[at(HTTP, &["browser_cannot_drive_open_server"])]),
    ("log_injection", &[at("pagella-http/src/log.rs", &["log_injection"])]),
    (
        "metrics_cardinality",
        &[
            at("pagella-server/tests/server/metrics.rs", &["metrics_cardinality"]),
            at("pagella-http/src/metrics/http.rs", &["metrics_cardinality"]),
        ],
    ),
    (
        "multimodal_and_draft_memory_flat",
        &[at("pagella/tests/cli/memory.rs", &["multimodal_and_draft_memory_flat"])],
    ),
];

/// Downloads, names, files.
const FILES: &[Line] = &[
    (
        "names_cannot_escape",
        &[
            at("pagella-http/src/name.rs", &["names_cannot_escape"]),
            at("pagella-server/tests/server/load.rs", &["names_cannot_escape"]),
        ],
    ),
    (
        "repository_listing_is_hostile",
        &[at("pagella/src/hub/download/fetch.rs", &["repository_listing_is_hostile"])],
    ),
    (
        "disk_full_and_interrupted",
        &[at("pagella/tests/cli/pull/folder.rs", &["disk_full_and_interrupted"])],
    ),
    ("no_self_update", &[at(NETWORK, &["no_self_update"])]),
    (
        "offline_means_offline",
        &[at(NETWORK, &["offline_means_offline", "offline_nobody_is_asked"])],
    ),
    (
        "model_folder_config_is_untrusted",
        &[at("pagella-server/tests/server/load.rs", &["model_folder_config_is_untrusted"])],
    ),
];

/// The built-in page.
const BUILT_IN_PAGE: &[Line] = &[
    ("model_output_cannot_run", &[at(PAGE, &["model_output_cannot_run"])]),
    ("link_cannot_submit", &[at(PAGE, &["link_cannot_submit"])]),
    ("key_not_exposed", &[at(PAGE, &["key_not_exposed"])]),
];

/// Whether a file has a test of this name that runs.
fn has_test(crates: &Path, file: &str, name: &str) -> bool {
    let text = std::fs::read_to_string(crates.join(file)).unwrap();
    if file.ends_with(".py") {
        // A flow of the page: it must be there, and it must be in the list of those that run.
        let run = std::fs::read_to_string(crates.join(file).with_file_name("run.py")).unwrap();
        return text.contains(&format!("\ndef {name}(")) && run.contains(&format!("(\"{name}\", "));
    }
    let Some((before, _)) = text.split_once(&format!("fn {name}(")) else { return false };
    let attributes = before.rsplit("\n\n").next().unwrap_or_default();
    attributes.contains("#[test]") && !attributes.contains("#[ignore")
}

#[test]
fn every_line_has_its_test() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let lines = [REACHED_BY_CLIENTS, SERVER, FILES, BUILT_IN_PAGE].concat();
    for (line, places) in &lines {
        assert!(!places.is_empty(), "{line} has no test");
        for place in *places {
            assert!(!place.tests.is_empty(), "{line} has no test in {}", place.file);
            for name in place.tests {
                assert!(
                    has_test(&crates, place.file, name),
                    "{line}: {name} is not in {}",
                    place.file
                );
            }
        }
    }
    assert!(!has_test(&crates, HARDENING, "refused"), "what is no test is told apart");
    assert_eq!(lines.len(), 22 + 18 + 6 + 3);
}
