//! Everything that can be wrong with files on disk, each with the file and tensor at fault.

use std::io;
use std::path::PathBuf;

use crate::dtype::Dtype;
use crate::exl2::groups::GroupTableError;
use crate::unsupported::UnsupportedFormat;

/// Result of this crate.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

/// What is wrong with a model directory, a file or a tensor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "a field that its name says all of needs no words")]
pub enum FormatError {
    /// The system refused to open, map, write or rename a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The model path is not a directory.
    #[error("{} is not a directory: give the directory that holds config.json and *.safetensors", path.display())]
    NotADirectory {
        /// The path given.
        path: PathBuf,
    },
    /// The directory holds no weights at all.
    #[error("{} holds no *.safetensors file: download the model's weights first", path.display())]
    NoSafetensors {
        /// The directory.
        path: PathBuf,
    },
    /// The weights are in a format that is recognised but not read.
    #[error("{}: {place} is {format}, which is not supported: {}", path.display(), format.advice())]
    Unsupported {
        /// File or directory.
        path: PathBuf,
        /// Tensor, file or setting that shows the format.
        place: String,
        /// What was recognised.
        format: UnsupportedFormat,
    },
    /// A linear in another format than the configuration names.
    #[error("{}: `{linear}` is stored as {found}, but the quantization_config of config.json says {promised}: the files are of different models, download them again", path.display())]
    OtherFormat {
        /// Directory or file searched.
        path: PathBuf,
        /// Base name of its tensors.
        linear: String,
        found: String,
        promised: String,
    },
    /// A configuration that names a format of which no tensor is there.
    #[error("{}: the quantization_config of config.json says {promised}, but no linear is stored so: the download is incomplete, or config.json is of another model", path.display())]
    NothingPromised {
        /// Directory or file searched.
        path: PathBuf,
        promised: String,
    },
    /// The file ends before its 8-byte header length.
    #[error("{} has {file_bytes} bytes, too short for a safetensors file: download it again", path.display())]
    FileTooShort {
        /// The file.
        path: PathBuf,
        /// Its length.
        file_bytes: u64,
    },
    /// The header claims more bytes than the format allows.
    #[error("{}: header of {header_bytes} bytes exceeds the limit of {limit_bytes}: the file is corrupt or no safetensors file", path.display())]
    HeaderTooLong {
        /// The file.
        path: PathBuf,
        /// Declared length.
        header_bytes: u64,
        /// What is allowed.
        limit_bytes: u64,
    },
    /// The header claims more bytes than the file has.
    #[error("{}: header of {header_bytes} bytes does not fit a file of {file_bytes}: the file is truncated, download it again", path.display())]
    HeaderBeyondFile {
        /// The file.
        path: PathBuf,
        /// Declared length.
        header_bytes: u64,
        /// Length of the file.
        file_bytes: u64,
    },
    /// The header is not the JSON that the format prescribes.
    #[error("{}: invalid safetensors header: {source}", path.display())]
    HeaderJson {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// One header names a tensor twice.
    #[error("{}: tensor `{tensor}` is listed twice in the header: the file is corrupt", path.display())]
    RepeatedTensor {
        /// The file.
        path: PathBuf,
        /// The name, as stored.
        tensor: String,
    },
    /// A tensor's byte range is reversed or leaves the file.
    #[error("{}: tensor `{tensor}` claims bytes {begin}..{end} of a data area of {data_bytes}: the file is truncated or corrupt", path.display())]
    OffsetsOutOfRange {
        /// The file.
        path: PathBuf,
        tensor: String,
        /// First byte.
        begin: u64,
        /// One past the last byte.
        end: u64,
        /// Bytes after the header.
        data_bytes: u64,
    },
    /// A tensor's byte range is not what its shape and type need.
    #[error("{}: tensor `{tensor}` of shape {shape:?} and type {dtype} does not fill its {range_bytes} bytes exactly: the file is corrupt", path.display())]
    SizeMismatch {
        /// The file.
        path: PathBuf,
        tensor: String,
        /// Declared shape.
        shape: Vec<usize>,
        /// Declared type.
        dtype: Dtype,
        /// Length of the byte range.
        range_bytes: u64,
    },
    /// Two tensors claim the same bytes.
    #[error("{}: tensors `{first}` and `{second}` overlap: the file is corrupt", path.display())]
    Overlap {
        /// The file.
        path: PathBuf,
        /// The one that starts earlier.
        first: String,
        /// The one that starts later.
        second: String,
    },
    /// Bytes that belong to no tensor; the format forbids them.
    #[error("{}: bytes {begin}..{end} of the data area belong to no tensor: the file is corrupt", path.display())]
    UnclaimedBytes {
        /// The file.
        path: PathBuf,
        /// First unclaimed byte.
        begin: u64,
        /// One past the last.
        end: u64,
    },
    /// Two files hold the same tensor and no index file decides between them.
    #[error("tensor `{tensor}` is in both {} and {}: remove the file that does not belong to the model", first.display(), second.display())]
    DuplicateTensor {
        /// The name after renaming.
        tensor: String,
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A tensor that is needed is in no file.
    #[error("{}: tensor `{tensor}` is missing: the download is incomplete or the model is of another family", path.display())]
    MissingTensor {
        /// Directory or file searched.
        path: PathBuf,
        /// The name.
        tensor: String,
    },
    /// None of the names of a linear is in any file.
    #[error("{}: no weights found for {}: the download is incomplete or the model is of another family", path.display(), tried.join(" or "))]
    MissingLinear {
        /// Directory searched.
        path: PathBuf,
        /// Base names tried.
        tried: Vec<String>,
    },
    /// A tensor has an element type that cannot be used for its purpose.
    #[error("{}: tensor `{tensor}` has type {found} where {expected} is needed", path.display())]
    WrongDtype {
        /// The file.
        path: PathBuf,
        tensor: String,
        /// Types that would do.
        expected: &'static str,
        /// What the file says.
        found: Dtype,
    },
    /// A tensor has another shape than its purpose requires.
    #[error("{}: tensor `{tensor}` has shape {found:?} where {expected} is needed", path.display())]
    WrongShape {
        /// The file.
        path: PathBuf,
        tensor: String,
        /// The shape needed, in words.
        expected: String,
        /// What the file says.
        found: Vec<usize>,
    },
    /// A linear of a family without biases carries one that is not zero.
    #[error("{}: `{tensor}` is present although this layer has no bias: the model is of another family", path.display())]
    UnexpectedBias {
        /// The file.
        path: PathBuf,
        /// The bias.
        tensor: String,
    },
    /// An EXL2 group table that contradicts itself or its weights.
    #[error("{}: `{tensor}`: {source}", path.display())]
    GroupTable {
        /// The file.
        path: PathBuf,
        /// The table.
        tensor: String,
        /// What is wrong.
        source: GroupTableError,
    },
    /// A row order that is not a permutation.
    #[error("{}: `{tensor}` is not a permutation of 0..{rows}: entry {index} is {value}", path.display())]
    NotAPermutation {
        /// The file.
        path: PathBuf,
        tensor: String,
        /// Number of rows.
        rows: usize,
        /// First offending entry.
        index: usize,
        /// Its value, out of range or seen before.
        value: i64,
    },
    /// A GPTQ row assigned to a group that does not exist.
    #[error("{}: `{tensor}`: row {row} is in group {group} of {groups}", path.display())]
    GroupIndex {
        /// The file.
        path: PathBuf,
        tensor: String,
        /// Input row.
        row: usize,
        /// Group it names.
        group: i64,
        /// Groups there are.
        groups: usize,
    },
    /// GPTQ rows that do not divide into the groups and no `g_idx` that assigns them.
    #[error("{}: `{tensor}`: {rows} rows do not divide into {groups} groups and there is no g_idx", path.display())]
    UnevenGroups {
        /// The file.
        path: PathBuf,
        /// The tensor that gives the number of groups.
        tensor: String,
        /// Input rows.
        rows: usize,
        groups: usize,
    },
    /// A fused tensor that cannot be cut as asked.
    #[error("{}: `{tensor}` cannot be split at {begin}..{end}: {reason}", path.display())]
    FusedSplit {
        /// The file.
        path: PathBuf,
        /// The fused tensor.
        tensor: String,
        /// Start of the offending range.
        begin: usize,
        end: usize,
        /// Why not.
        reason: &'static str,
    },
    /// A tensor holds infinities or NaN.
    #[error("{}: element {index} of `{tensor}` is not finite: the file is damaged, download it again", path.display())]
    NotFinite {
        /// The file.
        path: PathBuf,
        tensor: String,
        /// The first such element.
        index: usize,
    },
    /// Weights whose tables contradict themselves or their format.
    #[error("{}: `{tensor}` {problem}: the file is damaged or of another format, download it again", path.display())]
    BadWeights {
        /// The file.
        path: PathBuf,
        tensor: String,
        /// What is wrong, as the rest of a sentence.
        problem: String,
    },
    /// A directory that was given as an adapter is none.
    #[error("{} holds no adapter_config.json: give the directory of a PEFT adapter", path.display())]
    NotAnAdapter {
        /// The directory.
        path: PathBuf,
    },
    /// An adapter without its tensors.
    #[error("{} holds no adapter_model.safetensors: download the adapter's weights first", path.display())]
    NoAdapterTensors {
        /// The directory.
        path: PathBuf,
    },
    /// An adapter whose tensors are pickled.
    #[error("{} holds only adapter_model.bin, a pickle, which can run code when loaded: load it with PEFT and write it again with save_pretrained(dir, safe_serialization=True)", path.display())]
    PickledAdapter {
        /// The directory.
        path: PathBuf,
    },
    /// A configuration of an adapter that cannot be used.
    #[error("{}: {problem}", path.display())]
    AdapterConfig {
        /// The file.
        path: PathBuf,
        /// The field with its value, and what to do.
        problem: String,
    },
    /// A tensor of an adapter that cannot be used.
    #[error("{}: `{tensor}` {problem}", path.display())]
    AdapterTensor {
        /// The file.
        path: PathBuf,
        tensor: String,
        /// What is wrong and what to do.
        problem: &'static str,
    },
    /// An adapter that changes nothing, or more than any model has.
    #[error("{}: the adapter changes {modules} modules: download it again", path.display())]
    EmptyAdapter {
        /// The directory.
        path: PathBuf,
        /// How many it changes.
        modules: usize,
    },
    /// A tensor handed to the writer does not match its own description.
    #[error("cannot write {}: tensor `{tensor}`: {reason}", path.display())]
    Unwritable {
        /// The file to be written.
        path: PathBuf,
        tensor: String,
        /// What does not match.
        reason: &'static str,
    },
}

impl FormatError {
    /// A stable name of the variant for machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "io",
            Self::NotADirectory { .. } => "not_a_directory",
            Self::NoSafetensors { .. } => "no_safetensors",
            Self::Unsupported { .. } => "unsupported_format",
            Self::OtherFormat { .. } => "other_format",
            Self::NothingPromised { .. } => "nothing_promised",
            Self::FileTooShort { .. } => "file_too_short",
            Self::HeaderTooLong { .. } => "header_too_long",
            Self::HeaderBeyondFile { .. } => "header_beyond_file",
            Self::HeaderJson { .. } => "header_json",
            Self::RepeatedTensor { .. } => "repeated_tensor",
            Self::OffsetsOutOfRange { .. } => "offsets_out_of_range",
            Self::SizeMismatch { .. } => "size_mismatch",
            Self::Overlap { .. } => "overlap",
            Self::UnclaimedBytes { .. } => "unclaimed_bytes",
            Self::DuplicateTensor { .. } => "duplicate_tensor",
            Self::MissingTensor { .. } => "missing_tensor",
            Self::MissingLinear { .. } => "missing_linear",
            Self::WrongDtype { .. } => "wrong_dtype",
            Self::WrongShape { .. } => "wrong_shape",
            Self::UnexpectedBias { .. } => "unexpected_bias",
            Self::GroupTable { .. } => "group_table",
            Self::NotAPermutation { .. } => "not_a_permutation",
            Self::GroupIndex { .. } => "group_index",
            Self::UnevenGroups { .. } => "uneven_groups",
            Self::FusedSplit { .. } => "fused_split",
            Self::NotFinite { .. } => "not_finite",
            Self::BadWeights { .. } => "bad_weights",
            Self::NotAnAdapter { .. } => "not_an_adapter",
            Self::NoAdapterTensors { .. } => "no_adapter_tensors",
            Self::PickledAdapter { .. } => "pickled_adapter",
            Self::AdapterConfig { .. } => "adapter_config",
            Self::AdapterTensor { .. } => "adapter_tensor",
            Self::EmptyAdapter { .. } => "empty_adapter",
            Self::Unwritable { .. } => "unwritable",
        }
    }
}
