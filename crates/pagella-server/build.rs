//! Joins the page's sources into one script and one style, and compresses them, so that the program
//! carries its page, and notes which commit is built. What is joined, and in which order, says `ui/manifest.txt`.

#[path = "build/join.rs"]
mod join;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use blake2::digest::consts::U8;
use blake2::{Blake2b, Digest};
use flate2::Compression;
use flate2::write::GzEncoder;

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let ui = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("ui");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=ui");
    println!("cargo::rerun-if-changed=src/openapi/docs.css");
    let read = |name: &str| -> Result<String, Error> {
        fs::read_to_string(ui.join(name)).map_err(|error| format!("ui/{name}: {error}").into())
    };
    let listed = read("manifest.txt")?;
    let manifest = join::manifest(&listed);
    let texts = |end: &str| -> Result<Vec<String>, Error> {
        manifest.iter().filter(|name| name.ends_with(end)).map(|name| read(name)).collect()
    };
    let script = join::script(&texts(".js")?);
    let style = join::style(&texts(".css")?);
    let docs_style = join::style(&[read("style/tokens.css")?, read("../src/openapi/docs.css")?]);

    let mut table = String::from("&[\n");
    let mut add = |stem: &str, end: &str, text: &str| -> Result<String, Error> {
        let name = format!("{stem}-{}.{end}", digest(text));
        table.push_str(&asset(&out, &name, text)?);
        Ok(name)
    };
    let script_name = add("app", "js", &script)?;
    let style_name = add("app", "css", &style)?;
    let docs_name = add("docs", "css", &docs_style)?;
    table.push_str("]\n");
    let page = join::page(&read("index.html")?, &style_name, &script_name)?;
    fs::write(out.join("index.rs"), asset(&out, "index.html", &page)?.trim_end_matches(",\n"))?;
    fs::write(out.join("assets.rs"), table)?;
    println!("cargo::rustc-env=PAGELLA_DOCS_STYLE={docs_name}");
    println!("cargo::rustc-env=PAGELLA_COMMIT={}", commit());
    Ok(())
}

/// The commit that is built: what `PAGELLA_COMMIT` says, else what git says. Only releases ask git:
/// otherwise every commit would make everything be compiled again.
fn commit() -> String {
    println!("cargo::rerun-if-env-changed=PAGELLA_COMMIT");
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    let asked = || {
        if env::var("PROFILE").is_ok_and(|profile| profile != "release") {
            return None;
        }
        let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
        println!("cargo::rerun-if-changed={log}");
        git(&["rev-parse", "--short=12", "HEAD"])
    };
    let is_plain = |text: &String| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let given = env::var("PAGELLA_COMMIT").ok().filter(|text| !text.is_empty());
    given.or_else(asked).filter(is_plain).unwrap_or("unknown".to_owned())
}

/// Writes a file and its compressed twin; returns the Rust expression that embeds both.
fn asset(out: &Path, name: &str, text: &str) -> Result<String, Error> {
    let (plain, gzip) = (out.join(name), out.join(format!("{name}.gz")));
    fs::write(&plain, text)?;
    let mut encoder = GzEncoder::new(fs::File::create(&gzip)?, Compression::best());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()?;
    Ok(format!(
        "Asset {{ name: {name:?}, plain: include_bytes!({plain:?}), gzip: include_bytes!({gzip:?}) }},\n"
    ))
}

/// Names a content, so that a browser may keep it for ever.
fn digest(text: &str) -> String {
    Blake2b::<U8>::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
