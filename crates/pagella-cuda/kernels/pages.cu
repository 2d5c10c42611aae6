// Copying pages, whole or the first tokens of them, in all layers at once.
//
// Launch: grid (chunks, planes, moves), 256 threads; chunks is any number, 8 suits pages of a megabyte. Moves of
// one launch run at the same time, so inside one launch no page may be written twice, nor written and read. A
// list that is meant one after the other is cut by the host before a move whose source or target was a target
// earlier in the launch, or whose target was a source.
#include "pages.cuh"

extern "C" __global__ void __launch_bounds__(256) pg_copy_pages(const __grid_constant__ CopyPagesArgs a) {
    const PagePlane plane = a.planes[blockIdx.y];
    const PageMove move = a.moves[blockIdx.z];
    const uint64_t slot_bytes = uint64_t(256) * plane.row_bytes;
    const uint64_t page_bytes = slot_bytes * plane.kv_heads;
    // Whole pages lie in one piece; parts of them are a piece per head.
    const bool is_whole = a.tokens == 256;
    const uint32_t pieces = is_whole ? 1 : plane.kv_heads;
    const uint64_t piece_bytes = is_whole ? page_bytes : uint64_t(a.tokens) * plane.row_bytes;
    const uint64_t units = piece_bytes / 16;
    const uint64_t first = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
    for (uint32_t piece = 0; piece < pieces; piece++) {
        const uint8_t* from = plane.base + move.from * page_bytes + piece * slot_bytes;
        uint8_t* to = plane.base + move.to * page_bytes + piece * slot_bytes;
        for (uint64_t i = first; i < units; i += step) {
            reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
        }
        const uint64_t rest = 16 * units + threadIdx.x;
        if (blockIdx.x == 0 && rest < piece_bytes) {
            to[rest] = from[rest];
        }
    }
}
