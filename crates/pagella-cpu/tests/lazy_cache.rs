//! A cache takes memory where it is written. A process of its own, so that nothing else grows.

#![cfg(target_os = "linux")]

use pagella_backend::{Backend, KvFormat, KvLayer, KvSpec};
use pagella_cpu::{CpuBackend, CpuOptions};

/// Memory this process has in RAM, in bytes.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kib.expect("the status has the resident size") * 1024
}

#[test]
fn a_large_cache_takes_no_memory_until_it_is_written() {
    let backend = CpuBackend::new(CpuOptions::default()).expect("threads can be started");
    // Kept to the end: memory that was freed and taken again may be resident.
    let mut caches = Vec::new();
    for format in KvFormat::ALL {
        let layers = vec![KvLayer::plain(8, 128); 4];
        let spec = KvSpec { layers, format, pages: 256 };
        let before = resident_bytes();
        let mut kv = backend.kv(&spec).expect("the system promises more memory than it has");
        let reserved = resident_bytes().saturating_sub(before);
        assert!(reserved < spec.bytes() / 4, "{}: {reserved} at once", format.name());
        let page = vec![1; backend.page_bytes(&kv)];
        backend.write_page(&mut kv, 77, &page).expect("the page exists");
        let written = resident_bytes().saturating_sub(before);
        assert!(written >= page.len() / 2, "{}: {written} after a page", format.name());
        assert!(written < spec.bytes() / 4, "{}: {written} after a page", format.name());
        caches.push(kv);
    }
}
