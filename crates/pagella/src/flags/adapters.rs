//! Adapters of a model.

use std::path::PathBuf;

use clap::Args;
use pagella::EngineBuilder;

/// Adapters of a model.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Model")]
pub struct AdapterFlags {
    /// Add a LoRA adapter, the directory that PEFT wrote; what it adds is multiplied by SCALE. Several
    /// add up [default scale: 1]
    #[arg(long = "lora", value_name = "DIR[=SCALE]", value_parser = adapter)]
    adapters: Vec<(PathBuf, f32)>,
}

impl AdapterFlags {
    /// A builder with these adapters.
    pub fn apply(&self, builder: EngineBuilder) -> EngineBuilder {
        self.adapters.iter().fold(builder, |builder, (dir, scale)| builder.adapter(dir, *scale))
    }

    /// The directories with their scales.
    pub fn all(&self) -> &[(PathBuf, f32)] {
        &self.adapters
    }
}

/// A directory, and a scale behind the last `=` unless that belongs to its name.
fn adapter(text: &str) -> Result<(PathBuf, f32), String> {
    let whole = PathBuf::from(text);
    let Some((dir, scale)) = text.rsplit_once('=').filter(|_| !whole.exists()) else {
        return Ok((whole, 1.0));
    };
    match scale.parse::<f32>() {
        Ok(scale) if scale.abs() <= 1024.0 && !dir.is_empty() => Ok((PathBuf::from(dir), scale)),
        _ => Err("give DIR or DIR=SCALE, with a scale from -1024 to 1024".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_stands_behind_the_last_equals_sign() {
        assert_eq!(adapter("a/b"), Ok((PathBuf::from("a/b"), 1.0)));
        assert_eq!(adapter("a/b=0.5"), Ok((PathBuf::from("a/b"), 0.5)));
        assert_eq!(adapter("a=b=-2"), Ok((PathBuf::from("a=b"), -2.0)));
        for wrong in ["a=x", "a=", "=1", "a=nan", "a=1e9"] {
            assert!(adapter(wrong).is_err(), "{wrong}");
        }
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("rank=8");
        std::fs::create_dir(&odd).unwrap();
        assert_eq!(adapter(odd.to_str().unwrap()), Ok((odd, 1.0)));
    }
}
