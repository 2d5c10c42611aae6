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

/// Linears of integer codes in every format of them, 32 inputs and 16 outputs in two groups.
pub fn integers() -> Vec<Vec<Tensor>> {
    let i32s = |name: &str, shape: &[usize], byte: u8| {
        let bytes = 4 * shape.iter().product::<usize>();
        Tensor::new(name, "I32", shape, vec![byte; bytes])
    };
    let halves = |name: &str, shape: &[usize]| {
        Tensor::new(name, "F16", shape, [0x00, 0x2c].repeat(shape.iter().product()))
    };
    let singles = |name: &str, shape: &[usize]| {
        Tensor::new(name, "F32", shape, 0.25f32.to_le_bytes().repeat(shape.iter().product()))
    };
    let extents = [16i64, 32].into_iter().flat_map(i64::to_le_bytes).collect();
    let signed = |name: &str| Tensor::new(name, "I8", &[16, 32], vec![0x9b; 512]);
    vec![
        vec![
            i32s("a.qweight", &[32, 2], 0x5a),
            i32s("a.qzeros", &[2, 2], 0x77),
            halves("a.scales", &[2, 16]),
        ],
        vec![
            i32s("h.qweight", &[3, 32], 0x5a),
            i32s("h.qzeros", &[1, 3], 0x77),
            halves("h.scales", &[1, 32]),
            i32s("h.g_idx", &[32], 0),
        ],
        vec![
            i32s("c.weight_packed", &[16, 4], 0x5a),
            Tensor::new("c.weight_scale", "BF16", &[16, 2], [0x80, 0x3c].repeat(32)),
            i32s("c.weight_zero_point", &[2, 2], 0x77),
            Tensor::new("c.weight_shape", "I64", &[2], extents),
            i32s("c.weight_g_idx", &[32], 0),
        ],
        vec![
            signed("i.weight"),
            singles("i.weight_scale", &[16, 1]),
            Tensor::new("i.weight_zero_point", "I8", &[16, 1], vec![3; 16]),
        ],
        vec![
            signed("b.weight"),
            singles("b.SCB", &[16]),
            Tensor::new("b.weight_format", "U8", &[], vec![0]),
        ],
    ]
}

/// Two experts of gpt-oss, of 64 inputs and four rows of gate and up.
pub fn mxfp4_experts() -> Vec<Tensor> {
    vec![
        Tensor::new("x_blocks", "U8", &[2, 4, 2, 16], vec![0x3b; 256]),
        Tensor::new("x_scales", "U8", &[2, 4, 2], vec![120; 16]),
        Tensor::new("x.bias", "BF16", &[2, 4], vec![0x3c; 16]),
    ]
}

/// MXFP4 and NVFP4 of both writers, 64 inputs and 2 outputs.
pub fn four_bits() -> Vec<Tensor> {
    let number = |value: f32| value.to_le_bytes().to_vec();
    vec![
        Tensor::new("m.weight_packed", "U8", &[2, 32], vec![0x9c; 64]),
        Tensor::new("m.weight_scale", "U8", &[2, 2], vec![121; 4]),
        Tensor::new("c.weight_packed", "U8", &[2, 32], vec![0x9c; 64]),
        Tensor::new("c.weight_scale", "F8_E4M3", &[2, 4], vec![0x38; 8]),
        Tensor::new("c.weight_global_scale", "F32", &[1], number(3000.0)),
        Tensor::new("o.weight", "U8", &[2, 32], vec![0x9c; 64]),
        Tensor::new("o.weight_scale", "F8_E4M3", &[2, 4], vec![0x38; 8]),
        Tensor::new("o.weight_scale_2", "F32", &[], number(0.001)),
        Tensor::new("d.weight", "I8", &[2, 32], vec![0x9c; 64]),
        Tensor::new("d.scale", "F8_E8M0", &[2, 2], vec![121; 4]),
    ]
}

/// FP8 with rectangles, a scale per output, and one; 64 inputs and 2 outputs.
pub fn fp8() -> Vec<Tensor> {
    let numbers = |count: usize| 0.5f32.to_le_bytes().repeat(count);
    vec![
        Tensor::new("b.weight", "F8_E4M3", &[2, 64], vec![0x31; 128]),
        Tensor::new("b.weight_scale_inv", "F32", &[1, 1], numbers(1)),
        Tensor::new("r.weight", "F8_E5M2", &[2, 64], vec![0x31; 128]),
        Tensor::new("r.weight_scale", "F32", &[2, 1], numbers(2)),
        Tensor::new("y", "F8_E4M3", &[2, 2, 64], vec![0x31; 256]),
        Tensor::new("y_scale_inv", "F32", &[2, 1, 1], numbers(2)),
    ]
}

/// nf4 with double quantisation, 64 inputs and 2 outputs.
pub fn nf4() -> Vec<Tensor> {
    let numbers = |count: usize| 0.5f32.to_le_bytes().repeat(count);
    let state = br#"{"quant_type":"nf4","blocksize":64,"shape":[2,64],"nested_blocksize":256,"nested_offset":0.5}"#;
    vec![
        Tensor::new("n.weight", "U8", &[64, 1], vec![0x9c; 64]),
        Tensor::new("n.weight.absmax", "U8", &[2], vec![7, 250]),
        Tensor::new("n.weight.quant_map", "F32", &[16], numbers(16)),
        Tensor::new("n.weight.nested_absmax", "F32", &[1], numbers(1)),
        Tensor::new("n.weight.nested_quant_map", "F32", &[256], numbers(256)),
        Tensor::new("n.weight.quant_state.bitsandbytes__nf4", "U8", &[state.len()], state.to_vec()),
    ]
}

/// An EXL3 linear of 128 inputs and outputs, 2 bits, with scales of inputs and signs of outputs.
pub fn exl3() -> Vec<Tensor> {
    vec![
        Tensor::new("t.trellis", "I16", &[8, 8, 32], vec![0x9b; 8 * 8 * 32 * 2]),
        Tensor::new("t.suh", "F16", &[128], [0x00, 0x2c].repeat(128)),
        Tensor::new("t.sv", "I16", &[8], vec![0x5c; 16]),
        Tensor::new("t.mul1", "I32", &[], 0x83DC_D12D_u32.to_le_bytes().to_vec()),
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
