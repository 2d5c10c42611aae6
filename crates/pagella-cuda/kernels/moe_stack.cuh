// Several matrices on one row each, strip by strip: what a block of the experts' one-row kernels does.
//
// For every strip of its range the block multiplies all matrices: the units (matrix, segment) are dealt to its warps in
// turn, each warp has a ring of weight chunks that is kept full across units and strips, partial sums meet in
// shared memory and are added in their fixed order.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "moe.cuh"
#include "ptx.cuh"
#include "ring.cuh"

// Warps of a block, and chunks in flight per warp.
template <uint32_t WARPS, int DEPTH>
struct Stack {
    static constexpr uint32_t kWarps = WARPS, kThreads = 32 * WARPS;
    static constexpr int kDepth = DEPTH;
    static_assert(DEPTH <= kStartChunks, "the first round is fetched without the directory");
};

// The largest values of any matrix that may be in the stack; all multiples of what alignment needs.
struct StackShape {
    uint32_t slot_bytes;  // chunk
    uint32_t chunks;      // of a matrix
    uint32_t k;           // packed rows
    uint32_t segments;    // partial sums
};

// Dynamic shared memory, in this order.
//   rings      warps * depth * slot_bytes
//   x          inputs * 2 * k: rows in packed order, f16
//   features   features_bytes: for rows in their own order
//   matrices   n * sizeof(ExpertMatrix)
//   directory  n * 16 * chunks
//   parts      n * segments * 128
//   sums       n * 128
struct StackMemory {
    uint8_t* rings;
    uint8_t* x;
    half* features;
    ExpertMatrix* matrices;
    uint4* directory;
    float* parts;
    float* sums;

    // `slots`: warps * depth.
    __device__ __forceinline__ StackMemory(uint4* start, uint32_t slots, const StackShape& s, uint32_t n,
                                           uint32_t inputs, uint32_t features_bytes) {
        rings = reinterpret_cast<uint8_t*>(start);
        x = rings + slots * s.slot_bytes;
        uint8_t* const after_x = x + inputs * 2 * s.k;
        features = reinterpret_cast<half*>(after_x);
        matrices = reinterpret_cast<ExpertMatrix*>(after_x + features_bytes);
        directory = reinterpret_cast<uint4*>(matrices + n);
        parts = reinterpret_cast<float*>(directory + n * s.chunks);
        sums = parts + n * s.segments * T32_COLUMNS;
    }
};

// Copies a matrix of the table to shared memory; 32 neighbouring threads.
__device__ __forceinline__ void fetch_matrix(ExpertMatrix* to, const ExpertMatrix* from, uint32_t lane) {
    for (uint32_t i = lane; i < sizeof(ExpertMatrix) / 16; i += 32) {
        reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
}

// The chunks that a warp asks for: unit after unit, strip after strip.
template <class S>
struct StackFeed {
    const StackShape& shape;
    const StackMemory& memory;
    uint32_t units, warp;
    uint32_t strip, strips_left;
    uint32_t unit;
    const SegmentStart* start;
    const uint4* entries;  // of the segment's chunks
    const uint8_t* from;   // the next chunk
    uint32_t chunk;        // of the segment

    __device__ __forceinline__ StackFeed(const StackShape& shape, const StackMemory& memory, uint32_t units,
                                         uint32_t warp, uint32_t first_strip, uint32_t strips)
        : shape(shape), memory(memory), units(units), warp(warp), strip(first_strip), strips_left(strips), unit(warp) {
        enter();
    }

    // Goes to the first segment with chunks from `unit` on.
    __device__ __forceinline__ void enter() {
#pragma unroll 1
        for (;; unit += S::kWarps) {
            if (unit >= units) {
                unit = warp;
                strip++;
                if (--strips_left == 0 || unit >= units) {
                    strips_left = 0;
                    return;
                }
            }
            const uint32_t m = unit / shape.segments;
            const ExpertMatrix& e = memory.matrices[m];
            start = &e.segment[unit % shape.segments];
            if (start->count == 0) continue;
            entries = memory.directory + m * shape.chunks + start->first;
            from = e.matrix.strips + static_cast<size_t>(strip) * e.matrix.strip_bytes +
                   16 * static_cast<size_t>(start->offset16);
            chunk = 0;
            return;
        }
    }

    __device__ __forceinline__ void ask(Ring<S::kDepth>& ring) {
        if (strips_left == 0) {
            ring.ask_nothing();
            return;
        }
        const uint32_t bytes16 = chunk < kStartChunks ? start->bytes16[chunk] : entries[chunk].w >> 16;
        ring.ask(from, bytes16);
        from += 16 * bytes16;
        if (++chunk < start->count) return;
        unit += S::kWarps;
        enter();
    }
};

// Multiplies strips first_strip .. first_strip + strips of the `n` matrices that lie in memory.matrices, visible to all
// threads. stage() puts inputs into memory.x while the first weights travel, but what it loads should be on its way
// before: it would wait behind these weights. x_of(m) is where in memory.x, in bytes, matrix m finds its input.
// last(strip), after a barrier, finds the results of matrix m and column c of the strip at memory.sums[32 * m + c];
// threads that do nothing in it go on with the next strip.
template <class S, class Stage, class XOf, class Last>
__device__ __forceinline__ void stack_multiply(const StackShape& shape, const StackMemory& memory, uint32_t n,
                                               uint32_t first_strip, uint32_t strips, Stage stage, XOf x_of,
                                               Last last) {
    __shared__ uint64_t barriers[S::kWarps][S::kDepth];
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0);
    const uint32_t units = n * shape.segments;
#pragma unroll 1
    for (uint32_t m = 0; m < n; m++) {
        const Matrix& mat = memory.matrices[m].matrix;
        const uint32_t to = shared_address(memory.directory + m * shape.chunks);
        for (uint32_t i = threadIdx.x; i < mat.n_chunks; i += S::kThreads) {
            cp_async_16(to + 16 * i, mat.chunks + i);
        }
    }
    cp_async_commit();
    const uint32_t ring_bytes = S::kDepth * shape.slot_bytes;
    Ring<S::kDepth> ring(memory.rings + warp * ring_bytes, barriers[warp], shape.slot_bytes, lane);
    StackFeed<S> feed(shape, memory, units, warp, first_strip, strips);
#pragma unroll 1
    for (int d = 0; d < S::kDepth; d++) feed.ask(ring);
    stage();
    cp_async_wait<kBulkCopies ? 0 : S::kDepth>();  // the directory
    __syncthreads();

    // ldmatrix: all rows of a tile are the one row there is.
    const uint32_t x_lane = shared_address(memory.x) + 16 * (lane >> 3);
#pragma unroll 1
    for (uint32_t s = 0; s < strips; s++) {
#pragma unroll 1
        for (uint32_t unit = warp; unit < units; unit += S::kWarps) {
            const uint32_t m = unit / shape.segments;
            const ExpertMatrix& e = memory.matrices[m];
            const SegmentStart& start = e.segment[unit % shape.segments];
            const uint32_t chunks = start.count, kind = e.matrix.kind;
            if (chunks == 0) continue;
            const uint4* const entries = memory.directory + m * shape.chunks + start.first;
            const uint32_t x_matrix = x_lane + x_of(m);
            float acc[2][1][4] = {};
            uint32_t c = 0;
            uint4 entry = entries[0];
            auto run = [&](auto tag) {
#pragma unroll 1
                do {
                    const uint8_t* const weights = ring.wait();
                    const ChunkEntry now = chunk_entry(entry);
                    c++;
                    entry = entries[c < chunks ? c : 0];
                    const uint32_t x_chunk = x_matrix + 64 * now.first_block;
                    auto x_block = [=](uint32_t i) { return x_chunk + 64 * i; };
                    chunk_multiply<tag.kForm, 1, 0>(weights, now, lane, x_block, acc);
                    ring.release();
                    feed.ask(ring);
                } while (c < chunks && entry.y >> 24 == tag.kBits);
            };
#pragma unroll 1
            while (c < chunks) with_form(kind, entry.y >> 24, run);
            if ((lane & 3) == 0) {  // these lanes hold token 0
                float* const to = memory.parts + T32_COLUMNS * unit + (lane >> 2);
                to[0] = acc[0][0][0];
                to[8] = acc[0][0][2];
                to[16] = acc[1][0][0];
                to[24] = acc[1][0][2];
            }
        }
        __syncthreads();
        for (uint32_t m = warp; m < n; m += S::kWarps) {
            const ExpertMatrix& e = memory.matrices[m];
            const float* const parts = memory.parts + T32_COLUMNS * m * shape.segments + lane;
            float sum = parts[0];
#pragma unroll
            for (uint32_t i = 1; i < kSegments; i++) {
                if (i < e.segments) sum = __fadd_rn(sum, parts[T32_COLUMNS * i]);
            }
            const uint32_t column = (first_strip + s) * T32_COLUMNS + lane;
            const bool has_bias = e.matrix.bias && column < e.matrix.n;
            const float bias = has_bias ? e.matrix.bias[column] : 0.0f;
            memory.sums[T32_COLUMNS * m + lane] = linear_result(sum, e.matrix.alpha, e.matrix.bias, bias);
        }
        __syncthreads();
        last(first_strip + s);
    }
}
