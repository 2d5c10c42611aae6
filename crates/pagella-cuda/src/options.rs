//! What a user may choose of a device.

/// Most elements of weights dequantised at once when nobody says how many: 1 GiB.
pub const DEFAULT_DEQUANTISED_MAX: usize = 512 << 20;

/// Choices of the user.
#[derive(Clone, Copy, Debug)]
pub struct CudaOptions {
    /// Which device, as the driver counts them.
    pub device: usize,
    /// Most elements of weights that are dequantised at once for long prompts, two bytes each.
    /// Fewer take less memory and more time.
    pub dequantised_max: usize,
    /// Whether the embedding stays in page-locked host memory, of which steps read the rows they need.
    pub tables_on_host: bool,
    /// Whether steps of few tokens are recorded and replayed as one launch.
    pub graphs: bool,
}

impl Default for CudaOptions {
    fn default() -> Self {
        CudaOptions {
            device: 0,
            dequantised_max: DEFAULT_DEQUANTISED_MAX,
            tables_on_host: false,
            graphs: true,
        }
    }
}
