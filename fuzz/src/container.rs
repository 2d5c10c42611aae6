//! Safetensors files made by hand, independently of the writer of the crate under test.

use serde_json::{Map, Value, json};

use crate::demo;

/// A tensor to put into a file.
#[derive(Clone)]
pub struct Tensor {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl Tensor {
    fn new(name: &str, dtype: &str, shape: &[usize], data: Vec<u8>) -> Self {
        Self { name: name.into(), dtype: dtype.into(), shape: shape.into(), data }
    }
}

/// A file with these tensors, back to back.
pub fn file(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = Map::new();
    let mut data = Vec::new();
    for tensor in tensors {
        let begin = data.len();
        data.extend(&tensor.data);
        let entry = json!({"dtype": tensor.dtype, "shape": tensor.shape,
                           "data_offsets": [begin, data.len()]});
        header.insert(tensor.name.clone(), entry);
    }
    let header = Value::from(header).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

/// `file` with the length at its start replaced by where the header seems to end.
pub fn with_true_length(file: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    let end = file.windows(2).position(|pair| pair == b"}}");
    if let (Some(end), Some(length)) = (end, file.first_chunk_mut::<8>()) {
        *length = (end as u64 + 2).saturating_sub(8).to_le_bytes();
    }
    file
}

/// An EXL2 linear of 64 inputs and 32 outputs: one group of 4 bits, one of 2.
pub fn exl2() -> Vec<Tensor> {
    let groups = [4_i16, 0, 2, 4];
    let invperm = (0..64_i32).rev().flat_map(i32::to_le_bytes).collect();
    vec![
        Tensor::new("e.q_weight", "I32", &[6, 32], vec![0xa5; 6 * 32 * 4]),
        Tensor::new("e.q_scale", "I32", &[2, 4], vec![0x37; 2 * 4 * 4]),
        Tensor::new("e.q_scale_max", "F16", &[2], vec![0x00, 0x3c, 0x00, 0x38]),
        Tensor::new(
            "e.q_groups",
            "I16",
            &[4],
            groups.into_iter().flat_map(i16::to_le_bytes).collect(),
        ),
        Tensor::new("e.q_invperm", "I32", &[64], invperm),
    ]
}

/// A GPTQ linear of 64 inputs and 32 outputs in two groups.
pub fn gptq() -> Vec<Tensor> {
    let group_of = (0..64_i32).flat_map(|row| (row / 32).to_le_bytes()).collect();
    vec![
        Tensor::new("g.qweight", "I32", &[8, 32], vec![0x5a; 8 * 32 * 4]),
        Tensor::new("g.qzeros", "I32", &[2, 4], vec![0x77; 2 * 4 * 4]),
        Tensor::new("g.scales", "F16", &[2, 32], [0x00, 0x2c].repeat(64)),
        Tensor::new("g.g_idx", "I32", &[64], group_of),
    ]
}

/// A plain linear with a bias.
pub fn plain() -> Vec<Tensor> {
    vec![
        Tensor::new("p.weight", "BF16", &[4, 8], vec![0x3f; 64]),
        Tensor::new("p.bias", "F32", &[4], vec![0; 16]),
    ]
}

/// One linear of the demo model in a file of its own.
pub fn demo_linear(base: &str) -> Vec<u8> {
    let whole = demo::read("output.safetensors");
    let length = whole.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)) as usize;
    let (header, data) = whole[8..].split_at(length);
    let header: Map<String, Value> = serde_json::from_slice(header).expect("a valid demo model");
    let of_base = |name: &str| name.strip_prefix(base).is_some_and(|rest| rest.starts_with('.'));
    let tensors: Vec<Tensor> = header
        .iter()
        .filter(|(name, _)| of_base(name))
        .map(|(name, entry)| {
            let numbers = |key: &str| -> Vec<usize> {
                let list = entry[key].as_array().into_iter().flatten();
                list.filter_map(Value::as_u64).map(|n| n as usize).collect()
            };
            let range = numbers("data_offsets");
            let dtype = entry["dtype"].as_str().unwrap_or_default();
            Tensor::new(name, dtype, &numbers("shape"), data[range[0]..range[1]].to_vec())
        })
        .collect();
    file(&tensors)
}
