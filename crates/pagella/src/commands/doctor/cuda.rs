//! The CUDA part of `pagella doctor`: kernels, driver, devices, and what `--device auto` takes.

use pagella_cuda::probe::{Code, DRIVER_MIN, Driver, Gpu, Probe};
use serde_json::{Value, json};

use crate::output;

/// Labels and sentences for people. `loaded` is the version of the driver that the system has
/// loaded, which may be there although its library is not.
pub fn facts(probe: &Probe, loaded: Option<&str>) -> Vec<(String, String)> {
    let mut facts = vec![
        ("CUDA kernels".to_owned(), kernels(probe)),
        ("CUDA driver".to_owned(), driver(&probe.driver, loaded)),
    ];
    for (index, gpu) in probe.gpus().iter().enumerate() {
        facts.push((format!("GPU cuda:{index}"), device(probe, index, gpu)));
        if probe.obstacle(index).is_none() {
            facts.push((format!("  cuda:{index} uses"), probe.ways(index)));
        }
    }
    if probe.gpus().is_empty() {
        facts.push(("GPU".to_owned(), "none that the driver shows".to_owned()));
    }
    facts.push(("device auto".to_owned(), auto(probe)));
    facts
}

/// The same for programs.
pub fn json(probe: &Probe) -> Value {
    let best = probe.best();
    let devices: Vec<Value> = probe
        .gpus()
        .iter()
        .enumerate()
        .map(|(index, gpu)| {
            json!({
                "name": gpu.name,
                "compute_capability": gpu.limits.version(),
                "multiprocessors": gpu.limits.sms,
                "shared_memory_bytes": gpu.limits.shared_bytes_max,
                "warpgroup_tiles": probe.has_warpgroups(&gpu.limits),
                "bulk_copies": gpu.limits.has_bulk_copies(),
                "memory_bytes": gpu.memory_bytes,
                "free_bytes": gpu.free_bytes,
                "code": code_name(&gpu.code),
                "obstacle": probe.obstacle(index),
            })
        })
        .collect();
    let driver = match &probe.driver {
        Driver::Missing => Value::Null,
        Driver::Broken { message } => json!({ "error": message }),
        Driver::Ready { cuda, .. } => json!({ "cuda": version(*cuda) }),
    };
    json!({
        "available": best.is_ok(),
        "reason": best.as_ref().err(),
        "kernels": probe.toolkit.map(|toolkit| {
            json!({ "compiler": version(toolkit), "targets": probe.targets })
        }),
        "driver": driver,
        "devices": devices,
        "auto": best.map_or_else(|_| "cpu".to_owned(), |index| format!("cuda:{index}")),
    })
}

fn kernels(probe: &Probe) -> String {
    match probe.toolkit {
        None => "none in this build: run `cargo xtask cuda-toolchain` and build again".to_owned(),
        Some(toolkit) => {
            format!("for {}, by CUDA {}", probe.targets.join(" "), version(toolkit))
        }
    }
}

fn driver(driver: &Driver, loaded: Option<&str>) -> String {
    let loaded = loaded.map(|version| format!("version {version}"));
    match driver {
        Driver::Missing => match loaded {
            None => format!("not found; GPUs need version {DRIVER_MIN} or later"),
            Some(loaded) => format!(
                "its library (libcuda) was not found, although {loaded} is loaded: install it; \
                 in a container, pass the GPU through"
            ),
        },
        Driver::Broken { message } => format!("does not start: {message}"),
        Driver::Ready { cuda, .. } => {
            let loaded = loaded.map_or_else(String::new, |loaded| format!("{loaded}, "));
            format!("{loaded}CUDA {}", version(*cuda))
        }
    }
}

fn device(probe: &Probe, index: usize, gpu: &Gpu) -> String {
    let memory = output::bytes(gpu.memory_bytes);
    let free =
        gpu.free_bytes.map_or_else(String::new, |free| format!(", {} free", output::bytes(free)));
    let state = match (probe.obstacle(index), &gpu.code) {
        (Some(obstacle), _) => format!("CANNOT BE USED: {obstacle}"),
        (None, Code::Portable(name)) => {
            format!("usable with {name}, which the driver compiles when first used")
        }
        (None, code) => format!("usable with {}", code_name(code).unwrap_or("nothing")),
    };
    format!("{} ({}), {memory}{free}; {state}", gpu.name, gpu.limits.version())
}

fn auto(probe: &Probe) -> String {
    match probe.best() {
        Ok(index) if probe.gpus().len() > 1 => {
            format!("cuda:{index}, the usable one with the most memory")
        }
        Ok(index) => format!("cuda:{index}"),
        Err(obstacle) => format!("cpu: {obstacle}"),
    }
}

fn code_name(code: &Code) -> Option<&'static str> {
    match code {
        Code::Machine(name) | Code::Portable(name) => Some(name),
        Code::None => None,
    }
}

fn version((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagella_cuda::limits::Limits;

    fn gpu(name: &str, capability: (u32, u32), gib: u64, code: Code) -> Gpu {
        let free_bytes = (code != Code::None).then_some((gib - 1) << 30);
        let limits = Limits { capability, sms: 82, shared_bytes_max: 101_376 };
        Gpu { name: name.into(), limits, memory_bytes: gib << 30, free_bytes, code }
    }

    fn probe(driver: Driver) -> Probe {
        Probe { toolkit: Some((13, 0)), targets: vec!["sm_80", "sm_90", "compute_90"], driver }
    }

    fn text(probe: &Probe, loaded: Option<&str>) -> String {
        facts(probe, loaded).iter().map(|(label, value)| format!("{label}: {value}\n")).collect()
    }

    #[test]
    fn a_machine_without_a_driver_is_told_what_is_missing() {
        assert_eq!(
            text(&probe(Driver::Missing), None),
            "CUDA kernels: for sm_80 sm_90 compute_90, by CUDA 13.0\n\
             CUDA driver: not found; GPUs need version 580 or later\n\
             GPU: none that the driver shows\n\
             device auto: cpu: the NVIDIA driver was not found: install version 580 or later; in a \
             container, pass the GPU through\n"
        );
        let half = text(&probe(Driver::Missing), Some("580.1"));
        assert!(
            half.contains("libcuda) was not found, although version 580.1 is loaded"),
            "{half}"
        );
    }

    #[test]
    fn a_build_without_kernels_says_how_to_get_them() {
        let driver = Driver::Ready { cuda: (13, 0), gpus: vec![gpu("G", (9, 0), 80, Code::None)] };
        let probe = Probe { toolkit: None, targets: vec![], driver };
        let text = text(&probe, Some("580.1"));
        assert!(text.contains("none in this build: run `cargo xtask cuda-toolchain`"), "{text}");
        assert!(text.contains("auto: cpu: this build has no CUDA kernels"), "{text}");
        assert!(text.contains("driver: version 580.1, CUDA 13.0"), "{text}");
    }

    #[test]
    fn every_device_is_judged_and_the_choice_explained() {
        let gpus = vec![
            gpu("NVIDIA Old", (7, 5), 16, Code::None),
            gpu("NVIDIA New", (9, 0), 140, Code::Machine("sm_90")),
            gpu("NVIDIA Next", (10, 0), 140, Code::Portable("compute_90")),
        ];
        let probe = probe(Driver::Ready { cuda: (13, 0), gpus });
        let text = text(&probe, None);
        for line in [
            "GPU cuda:0: NVIDIA Old (7.5), 16.0 GiB; CANNOT BE USED: the device is too old",
            "GPU cuda:1: NVIDIA New (9.0), 140 GiB, 139 GiB free; usable with sm_90\n",
            "GPU cuda:2: NVIDIA Next (10.0), 140 GiB, 139 GiB free; usable with compute_90, which",
            "cuda:1 uses: 82 multiprocessors, 99 KiB of shared memory; prompts by warp tiles, weights",
            "device auto: cuda:1, the usable one with the most memory\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let json = json(&probe);
        assert_eq!((&json["available"], &json["auto"]), (&json!(true), &json!("cuda:1")));
        assert_eq!(json["devices"][1]["code"], "sm_90");
        assert!(json["devices"][0]["obstacle"].as_str().unwrap().contains("too old"));
    }

    #[test]
    fn old_and_broken_drivers_are_explained() {
        let gpus = vec![gpu("G", (9, 0), 80, Code::Machine("sm_90"))];
        let old = text(&probe(Driver::Ready { cuda: (12, 4), gpus }), Some("550.54"));
        assert!(old.contains("driver: version 550.54, CUDA 12.4\n"), "{old}");
        assert!(old.contains("CANNOT BE USED: the NVIDIA driver offers CUDA 12.4"), "{old}");
        let broken = text(&probe(Driver::Broken { message: "system not ready".into() }), None);
        assert!(broken.contains("CUDA driver: does not start: system not ready\n"), "{broken}");
    }
}
