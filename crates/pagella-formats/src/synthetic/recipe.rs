//! Matrices rounded to integers, written as the tensors of every format of integer codes.
//!
//! This is the way back from each reader, made from the definition of the format and not from the
//! reader, so that a model can be put into a format and read again. Rounding is to the nearest code
//! between the extremes of each group, which is no good way to quantise a model.

#![allow(clippy::indexing_slicing, reason = "every index is below an extent of the matrix")]

use half::{bf16, f16};

use crate::dtype::{Dtype, OtherDtype};
use crate::safetensors::write::TensorData;

/// A format of integer codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntegerFormat {
    /// AWQ, `gemm`.
    Awq,
    /// GPTQ with zero points less one.
    Gptq,
    /// GPTQ with zero points as they are.
    GptqV2,
    /// compressed-tensors, packed; with zero points if asymmetric.
    PackQuantized,
    /// compressed-tensors, a byte each; with zero points if asymmetric.
    IntQuantized,
    /// bitsandbytes, 8 bits.
    BnbInt8,
}

/// How a matrix is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounding {
    /// The format that it will be written in, which says what scales may be.
    pub format: IntegerFormat,
    /// Bits of a code.
    pub bits: u8,
    /// Rows that share a scale; all of them for one group.
    pub group_rows: usize,
    /// Whether every zero point is the middle of the codes.
    pub symmetric: bool,
    /// Whether rows are in groups in a scattered order, where the format has one.
    pub scattered: bool,
}

/// A rounded matrix, `[rows, columns]` as it is multiplied.
#[derive(Clone, Debug)]
pub struct IntegerMatrix {
    how: Rounding,
    rows: usize,
    columns: usize,
    groups: usize,
    group_of_row: Vec<usize>,
    /// `[rows, columns]`, from 0 on.
    codes: Vec<u8>,
    /// `[groups, columns]`.
    zeros: Vec<u8>,
    /// `[groups, columns]`.
    scales: Vec<f32>,
}

/// A tensor that owns its bytes.
#[derive(Clone, Debug)]
pub struct RecipeTensor {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Extents.
    pub shape: Vec<usize>,
    /// Little-endian elements.
    pub data: Vec<u8>,
}

impl RecipeTensor {
    /// The tensor, borrowed, for a file.
    pub fn borrowed(&self) -> TensorData<'_> {
        let (name, shape) = (self.name.clone(), self.shape.clone());
        TensorData { name, dtype: self.dtype, shape, data: &self.data }
    }
}

impl IntegerMatrix {
    /// Rounds `weights`, `[rows, columns]`.
    ///
    /// # Panics
    /// When they are not as many, or rows do not divide into groups.
    pub fn round(weights: &[f32], rows: usize, columns: usize, how: Rounding) -> Self {
        assert!(weights.len() == rows * columns && rows.is_multiple_of(how.group_rows));
        let groups = rows / how.group_rows;
        let scattered = |row: usize| (row * 7 + 3) % groups;
        let consecutive = |row: usize| row / how.group_rows;
        let group = |row| if how.scattered { scattered(row) } else { consecutive(row) };
        let mut matrix = Self {
            how,
            rows,
            columns,
            groups,
            group_of_row: (0..rows).map(group).collect(),
            codes: vec![0; rows * columns],
            zeros: vec![0; groups * columns],
            scales: vec![0.0; groups * columns],
        };
        for group in 0..groups {
            for column in 0..columns {
                matrix.round_group(weights, group, column);
            }
        }
        matrix
    }

    fn round_group(&mut self, weights: &[f32], group: usize, column: usize) {
        let last = ((1u32 << self.how.bits) - 1) as f32;
        let middle = (last + 1.0) / 2.0;
        let rows = (0..self.rows).filter(|row| self.group_of_row[*row] == group);
        let rows: Vec<usize> = rows.collect();
        let of_group = || rows.iter().map(|row| weights[row * self.columns + column]);
        let (low, high) = of_group().fold((0f32, 0f32), |(low, high), w| (low.min(w), high.max(w)));
        let (scale, zero) = if self.how.format == IntegerFormat::BnbInt8 {
            (low.abs().max(high) / 127.0, middle)
        } else if self.how.symmetric {
            (low.abs().max(high) / (middle - 1.0).max(1.0), middle)
        } else {
            let scale = (high - low) / last;
            (scale, (-low / scale.max(f32::MIN_POSITIVE)).round().clamp(0.0, last))
        };
        let scale = self.storable(scale.max(1e-6));
        // A GPTQ file of 4 bits cannot say 0.
        let zero = if self.how.format == IntegerFormat::Gptq { zero.max(1.0) } else { zero };
        let at = group * self.columns + column;
        (self.scales[at], self.zeros[at]) = (scale, zero as u8);
        for row in rows {
            let place = row * self.columns + column;
            self.codes[place] = (weights[place] / scale + zero).round().clamp(0.0, last) as u8;
        }
    }

    /// A scale as the format stores it.
    fn storable(&self, scale: f32) -> f32 {
        match self.how.format {
            IntegerFormat::PackQuantized => bf16::from_f32(scale).to_f32(),
            IntegerFormat::IntQuantized => scale,
            // What is stored is the largest magnitude.
            IntegerFormat::BnbInt8 => scale * 127.0 / 127.0,
            _ => f16::from_f32(scale).to_f32(),
        }
    }

    /// The weights that the rounded matrix stands for, `[rows, columns]`.
    pub fn values(&self) -> Vec<f32> {
        let value = |at: usize| {
            let (row, column) = (at / self.columns, at % self.columns);
            let group = self.group_of_row[row] * self.columns + column;
            let centred = f32::from(self.codes[at]) - f32::from(self.zeros[group]);
            match self.how.format {
                IntegerFormat::Awq => f16::from_f32(centred * self.scales[group]).to_f32(),
                IntegerFormat::BnbInt8 => centred * (self.scales[group] * 127.0 / 127.0),
                _ => centred * self.scales[group],
            }
        };
        (0..self.codes.len()).map(value).collect()
    }

    /// The tensors of a linear `base`.
    pub fn tensors(&self, base: &str) -> Vec<RecipeTensor> {
        let tensors = match self.how.format {
            IntegerFormat::Awq => self.awq(),
            IntegerFormat::Gptq => self.gptq(1),
            IntegerFormat::GptqV2 => self.gptq(0),
            IntegerFormat::PackQuantized => self.pack_quantized(),
            IntegerFormat::IntQuantized => self.int_quantized(),
            IntegerFormat::BnbInt8 => self.bnb_int8(),
        };
        let named = |(suffix, dtype, shape, data)| RecipeTensor {
            name: format!("{base}.{suffix}"),
            dtype,
            shape,
            data,
        };
        tensors.into_iter().map(named).collect()
    }

    fn code(&self, row: usize, column: usize) -> u8 {
        self.codes[row * self.columns + column]
    }

    /// `[groups, columns]` as binary16.
    fn half_scales(&self) -> Unnamed {
        let data = self.scales.iter().flat_map(|scale| f16::from_f32(*scale).to_le_bytes());
        ("scales", Dtype::F16, vec![self.groups, self.columns], data.collect())
    }

    fn awq(&self) -> Vec<Unnamed> {
        // Where each of eight columns lies in its word.
        const PLACES: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
        let words = self.columns / 8;
        let packed = |codes: &dyn Fn(usize) -> u8| {
            let word = |word: usize| {
                (0..8)
                    .fold(0u32, |bits, c| bits | u32::from(codes(8 * word + c)) << (4 * PLACES[c]))
            };
            (0..words).flat_map(|at| word(at).to_le_bytes()).collect::<Vec<u8>>()
        };
        let weights = (0..self.rows).flat_map(|row| packed(&|column| self.code(row, column)));
        let zeros = (0..self.groups)
            .flat_map(|group| packed(&|column| self.zeros[group * self.columns + column]));
        vec![
            ("qweight", Dtype::I32, vec![self.rows, words], weights.collect()),
            ("qzeros", Dtype::I32, vec![self.groups, words], zeros.collect()),
            self.half_scales(),
        ]
    }

    fn gptq(&self, less: u8) -> Vec<Unnamed> {
        let (bits, columns) = (usize::from(self.how.bits), self.columns);
        let mut words = vec![0u8; self.rows * bits / 8 * columns];
        for column in 0..columns {
            let stream = stream((0..self.rows).map(|row| self.code(row, column)), bits);
            for (word, bytes) in stream.as_chunks::<4>().0.iter().enumerate() {
                words[(word * columns + column) * 4..][..4].copy_from_slice(bytes);
            }
        }
        let zeros = (0..self.groups).flat_map(|group| {
            let zeros = &self.zeros[group * columns..][..columns];
            stream(zeros.iter().map(|zero| zero - less), bits)
        });
        let order = self.group_of_row.iter().flat_map(|group| (*group as i32).to_le_bytes());
        vec![
            ("qweight", Dtype::I32, vec![self.rows * bits / 32, columns], words),
            ("qzeros", Dtype::I32, vec![self.groups, columns * bits / 32], zeros.collect()),
            self.half_scales(),
            ("g_idx", Dtype::I32, vec![self.rows], order.collect()),
        ]
    }

    /// Scales in the order of the outputs, `[columns, groups]`.
    fn output_scales(&self) -> impl Iterator<Item = f32> {
        let at = |at: usize| self.scales[at % self.groups * self.columns + at / self.groups];
        (0..self.scales.len()).map(at)
    }

    fn pack_quantized(&self) -> Vec<Unnamed> {
        let (bits, columns) = (usize::from(self.how.bits), self.columns);
        let words = (0..columns)
            .flat_map(|column| stream((0..self.rows).map(|row| self.code(row, column)), bits));
        let scales = self.output_scales().flat_map(|scale| bf16::from_f32(scale).to_le_bytes());
        let shape = [columns as i64, self.rows as i64].into_iter().flat_map(i64::to_le_bytes);
        let shape_type = Dtype::Other(OtherDtype::I64);
        let row_words = (self.rows * bits).div_ceil(32);
        let mut tensors = vec![
            ("weight_packed", Dtype::I32, vec![columns, row_words], words.collect()),
            ("weight_scale", Dtype::BF16, vec![columns, self.groups], scales.collect()),
            ("weight_shape", shape_type, vec![2], shape.collect()),
        ];
        if !self.how.symmetric {
            let word_rows = (columns * bits).div_ceil(32);
            let mut data = vec![0u8; word_rows * self.groups * 4];
            for group in 0..self.groups {
                let zeros = self.zeros[group * columns..][..columns].iter().copied();
                for (word, bytes) in stream(zeros, bits).as_chunks::<4>().0.iter().enumerate() {
                    data[(word * self.groups + group) * 4..][..4].copy_from_slice(bytes);
                }
            }
            tensors.push(("weight_zero_point", Dtype::I32, vec![word_rows, self.groups], data));
        }
        if self.how.scattered {
            let order = self.group_of_row.iter().flat_map(|group| (*group as i32).to_le_bytes());
            tensors.push(("weight_g_idx", Dtype::I32, vec![self.rows], order.collect()));
        }
        tensors
    }

    /// Codes in the order of the outputs, `[columns, rows]`, as signed bytes.
    fn signed_bytes(&self) -> Unnamed {
        let at = |at: usize| self.code(at % self.rows, at / self.rows) ^ 0x80;
        let data = (0..self.codes.len()).map(at).collect();
        ("weight", Dtype::Other(OtherDtype::I8), vec![self.columns, self.rows], data)
    }

    fn int_quantized(&self) -> Vec<Unnamed> {
        let scales = self.output_scales().flat_map(f32::to_le_bytes).collect();
        let shape = vec![self.columns, self.groups];
        let mut tensors =
            vec![self.signed_bytes(), ("weight_scale", Dtype::F32, shape.clone(), scales)];
        if !self.how.symmetric {
            let at = |at: usize| self.zeros[at % self.groups * self.columns + at / self.groups];
            let zeros = (0..self.zeros.len()).map(|index| at(index) ^ 0x80).collect();
            let i8s = Dtype::Other(OtherDtype::I8);
            tensors.push(("weight_zero_point", i8s, shape, zeros));
        }
        tensors
    }

    fn bnb_int8(&self) -> Vec<Unnamed> {
        let largest = self.scales.iter().flat_map(|scale| (scale * 127.0).to_le_bytes()).collect();
        let format = Dtype::Other(OtherDtype::U8);
        vec![
            self.signed_bytes(),
            ("SCB", Dtype::F32, vec![self.columns], largest),
            ("weight_format", format, vec![], vec![0]),
        ]
    }
}

/// Suffix, type, shape and bytes of a tensor.
type Unnamed = (&'static str, Dtype, Vec<usize>, Vec<u8>);

/// Codes one after the other, the lowest bits first, to whole words.
fn stream(codes: impl Iterator<Item = u8>, bits: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut held, mut count) = (0u64, 0);
    for code in codes {
        held |= u64::from(code) << count;
        count += bits;
        if count >= 32 {
            bytes.extend((held as u32).to_le_bytes());
            held >>= 32;
            count -= 32;
        }
    }
    if count > 0 {
        bytes.extend((held as u32).to_le_bytes());
    }
    bytes
}
