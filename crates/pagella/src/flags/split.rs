//! How a model is cut over its devices.

use clap::Args;
use pagella::{CpuLayers, EngineBuilder, Split, UnknownName};

/// How a model is cut over its devices.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Model")]
pub struct SplitFlags {
    /// Most GB that the model may take of each device, cache included, as in 20,24 [default: what is free]
    #[arg(long, value_name = "GB,…", value_parser = shares)]
    gpu_split: Option<Amounts>,
    /// MB of each device that stay free, as in 192,64 [default: 0 on CPUs]
    #[arg(long, value_name = "MB,…", value_parser = reserves)]
    reserve_vram: Option<Amounts>,
    /// Layers that the CPU takes behind the listed devices, counted from the last, or auto for as few as
    /// possible
    #[arg(long, value_name = "N|auto")]
    cpu_layers: Option<CpuLayers>,
    /// What the configuration says.
    #[arg(skip)]
    tensor_parallel: bool,
}

/// Bytes of every device.
#[derive(Clone, Debug, Default)]
struct Amounts(Vec<u64>);

impl SplitFlags {
    /// With what the configuration says, in GB and MB, where the command line says nothing.
    pub fn or(
        mut self,
        gpu_split: &[f64],
        reserve: &[f64],
        tensor_parallel: bool,
    ) -> Result<Self, UnknownName> {
        self.tensor_parallel = tensor_parallel;
        let shares = Split::shares_of_gb(gpu_split)?;
        self.gpu_split = self.gpu_split.or(Some(Amounts(shares)));
        let reserves = Split::reserves_of_mb(reserve)?;
        self.reserve_vram = self.reserve_vram.or(Some(Amounts(reserves)));
        Ok(self)
    }

    /// A builder with these choices.
    pub fn apply(&self, builder: EngineBuilder) -> EngineBuilder {
        let bytes = |amounts: &Option<Amounts>| amounts.clone().unwrap_or_default().0;
        builder.split(Split {
            shares: bytes(&self.gpu_split),
            reserves: bytes(&self.reserve_vram),
            cpu_layers: self.cpu_layers,
            tensor_parallel: self.tensor_parallel,
        })
    }
}

fn shares(text: &str) -> Result<Amounts, String> {
    match text {
        "auto" => Ok(Amounts::default()),
        _ => amounts(text, Split::shares_of_gb, "GB"),
    }
}

fn reserves(text: &str) -> Result<Amounts, String> {
    amounts(text, Split::reserves_of_mb, "MB")
}

fn amounts(
    text: &str,
    read: impl Fn(&[f64]) -> Result<Vec<u64>, UnknownName>,
    unit: &str,
) -> Result<Amounts, String> {
    let numbers: Result<Vec<f64>, _> = text.split(',').map(|word| word.trim().parse()).collect();
    let numbers = numbers.map_err(|_| format!("give {unit} of each device, as in 20,24"))?;
    read(&numbers).map(Amounts).map_err(|problem| problem.to_string())
}
