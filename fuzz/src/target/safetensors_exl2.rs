//! A safetensors file: its header, the group tables on their own, then every linear it describes.

use std::path::Path;

use pagella_formats::exl2::groups;
use pagella_formats::safetensors::header;
use pagella_formats::{BiasRule, Checkpoint, GptqZeros, LinearKind, LinearRequest, load_linear};

use crate::container;

/// Larger matrices are read but not dequantised: that would test patience, not parsing.
const WEIGHTS_MAX: usize = 1 << 20;

pub fn run(data: &[u8]) {
    let _ = header::parse(data, data.len() as u64, Path::new("fuzz.safetensors"));
    let (table, ceilings) = data.split_at(data.len() * 2 / 3);
    let _ = groups::parse(table, ceilings, data.first().copied().unwrap_or(0).into());
    read_file(data);
    // Most changes to a header change its length, and the first check would refuse the rest.
    read_file(&container::with_true_length(data));
}

fn read_file(data: &[u8]) {
    let path =
        std::env::temp_dir().join(format!("pagella-fuzz-{}.safetensors", std::process::id()));
    std::fs::write(&path, data).expect("the temporary folder is writable");
    if let Ok(checkpoint) = Checkpoint::open_file(&path) {
        let bases: Vec<String> = checkpoint.names().filter_map(base).collect();
        bases.into_iter().for_each(|base| load(&checkpoint, base));
    }
    // The mapping is gone, so the file may change.
    let _ = std::fs::remove_file(&path);
}

/// What stands before the last dot, which all tensors of a linear share.
fn base(name: &str) -> Option<String> {
    name.rsplit_once('.').map(|(base, _)| base.to_owned())
}

/// Asks for the shape the tensors seem to have, so that the reader gets past its first check.
fn load(checkpoint: &Checkpoint, base: String) {
    let extent = |suffix: &str, axis: usize| {
        let tensor = checkpoint.tensor(&format!("{base}.{suffix}"))?;
        tensor.shape.get(axis).copied()
    };
    let in_features = extent("q_invperm", 0).or(extent("g_idx", 0)).or(extent("weight", 1));
    let in_features = in_features.or(extent("suh", 0)).or(extent("su", 0).map(|n| 16 * n));
    let out_features = extent("q_weight", 1).or(extent("qweight", 1)).or(extent("weight", 0));
    let out_features = out_features.or(extent("svh", 0)).or(extent("sv", 0).map(|n| 16 * n));
    // Of AWQ, whose weights are named like those of GPTQ, and of packed integers, which say it.
    let (scales, packed) = (extent("scales", 1), extent("weight_packed", 0));
    let out_features = scales.or(out_features).or(packed);
    let said = checkpoint.tensor(&format!("{base}.weight_shape"));
    let said = said.and_then(|tensor| Some(*tensor.to_i64_vec().ok()?.get(1)?));
    let said = said.and_then(|inputs| usize::try_from(inputs).ok());
    let of_awq = extent("qweight", 0).filter(|_| in_features.is_none());
    let in_features = in_features.or(said).or(of_awq);
    let (in_features, out_features) = (in_features.unwrap_or(64), out_features.unwrap_or(32));
    for gptq_zeros in [GptqZeros::LessOne, GptqZeros::LessOneByWord, GptqZeros::AsTheyAre] {
        let request = LinearRequest {
            bases: std::slice::from_ref(&base),
            fused: None,
            in_features,
            out_features,
            bias: BiasRule::IfPresent,
            transposed: false,
            gptq_zeros,
        };
        let Ok(linear) = load_linear(checkpoint, &request) else { continue };
        assert_eq!((linear.in_features(), linear.out_features()), (in_features, out_features));
        if in_features.saturating_mul(out_features) > WEIGHTS_MAX {
            continue;
        }
        if linear.kind() != LinearKind::Plain {
            assert_eq!(linear.values().len(), in_features * out_features);
        }
    }
}

/// A linear of each kind, as small as the formats allow; one of the demo model; an empty file.
pub fn seeds() -> Vec<Vec<u8>> {
    let file = |parts: &[&[container::Tensor]]| container::file(&parts.concat());
    let (exl2, gptq, plain) = (container::exl2(), container::gptq(), container::plain());
    let integers = container::integers();
    let mut seeds: Vec<Vec<u8>> = integers.iter().map(|tensors| file(&[tensors])).collect();
    seeds.extend([
        file(&[&container::exl3()]),
        file(&[&exl2, &gptq, &plain]),
        file(&[&exl2]),
        file(&[&gptq]),
        file(&[&plain]),
        file(&[]),
        container::demo_linear("model.layers.0.self_attn.k_proj"),
    ]);
    seeds
}
