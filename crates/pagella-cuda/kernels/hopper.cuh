// Hopper's own instructions (sm_90a): products of a warpgroup, barriers that count bytes, bulk copies.
// Nothing here compiles for other chips; kernels that use it have empty bodies there.
#pragma once
#include <cstdint>

#include "ptx.cuh"

// ---- Barriers in shared memory -------------------------------------------------------------------

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes fresh barriers visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives, and adds to the bytes that this phase waits for.
__device__ __forceinline__ void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// `barrier`: an address of the cluster's shared memory, from `cluster_address`. Orders nothing but what the caller
// has already waited for (finished products); a release over the cluster would cost a fence over the whole GPU.
__device__ __forceinline__ void barrier_arrive_cluster(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Waits for the end of the phase with this parity.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\n"
        "bra again;\n"
        "over:\n"
        "}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// ---- Clusters ------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Where block `rank` of the cluster keeps what lies at `address` here.
__device__ __forceinline__ uint32_t cluster_address(uint32_t address, uint32_t rank) {
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

// All threads of all blocks of the cluster.
__device__ __forceinline__ void cluster_sync() {
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}

// ---- Bulk copies ---------------------------------------------------------------------------------

// `bytes` and both addresses are multiples of 16; never 0 bytes, they would not complete.
__device__ __forceinline__ void bulk_copy(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
        "l"(global), "r"(bytes), "r"(barrier)
        : "memory");
}

// To the same place in every block of the cluster named in `mask`; each block's own barrier counts the bytes.
__device__ __forceinline__ void bulk_copy_multicast(uint32_t shared, const void* global, uint32_t bytes,
                                                    uint32_t barrier, uint16_t mask) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1], %2, [%3], %4;" ::"r"(shared),
        "l"(global), "r"(bytes), "r"(barrier), "h"(mask)
        : "memory");
}

// ---- Registers -----------------------------------------------------------------------------------

// All four warps of the warpgroup; each role must be one branch of a single if/else.
template <int COUNT>
__device__ __forceinline__ void registers_raise() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ __forceinline__ void registers_lower() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- Products of a warpgroup ---------------------------------------------------------------------

// Describes a K-major operand in shared memory: rows of 64 f16 (128 bytes) whose 16-byte units are XOR-ed
// by (row & 7), rows back to back, `address` a multiple of 1024. The next 16 of K lie 2 further.
__device__ __forceinline__ uint64_t operand_128b(uint32_t address) {
    constexpr uint64_t kSwizzle128 = 1ull << 62;
    constexpr uint64_t kEightRows = (1024ull >> 4) << 32;
    constexpr uint64_t kLeading = 1ull << 16;  // unused with this swizzle
    return kSwizzle128 | kEightRows | kLeading | ((address & 0x3FFFFu) >> 4);
}

// Before the first product, and after other code has touched the accumulators.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most `PENDING` committed groups are unfinished.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Names of 8 accumulators each, for the instruction text.
#define PG_D0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define PG_D1 "%8,%9,%10,%11,%12,%13,%14,%15"
#define PG_D2 "%16,%17,%18,%19,%20,%21,%22,%23"
#define PG_D3 "%24,%25,%26,%27,%28,%29,%30,%31"
#define PG_D4 "%32,%33,%34,%35,%36,%37,%38,%39"
#define PG_D5 "%40,%41,%42,%43,%44,%45,%46,%47"
#define PG_D6 "%48,%49,%50,%51,%52,%53,%54,%55"
#define PG_D7 "%56,%57,%58,%59,%60,%61,%62,%63"
#define PG_D(mode, i)                                                                                     \
    mode(d[i]), mode(d[i + 1]), mode(d[i + 2]), mode(d[i + 3]), mode(d[i + 4]), mode(d[i + 5]), mode(d[i + 6]), \
        mode(d[i + 7])

// One 16-wide step of K: first: d = a * b, step: d = a * b + d. a: 64 rows, b: N rows (its transpose is the right
// factor), both f16 in shared memory. d: 64 x N f32; thread t of the warpgroup, r = t % 32 / 4, c = t % 4, holds of
// rows 16 * (t / 32) + r and 8 more the columns 8j + 2c and 8j + 2c + 1 in d[4j], d[4j + 1] and d[4j + 2], d[4j + 3].
template <int N>
struct Wgmma;

#define PG_WGMMA(N, NAMES, A, B, OUTPUTS)                                                                    \
    template <>                                                                                              \
    struct Wgmma<N> {                                                                                        \
        static __device__ __forceinline__ void first(float (&d)[N / 2], uint64_t a, uint64_t b) {            \
            asm volatile("{.reg .pred none; setp.ne.b32 none, 0, 0;\n"                                       \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" NAMES "}, " A ", " B      \
                         ", none, 1, 1, 0, 0;}\n"                                                            \
                         : OUTPUTS("=f")                                                                     \
                         : "l"(a), "l"(b));                                                                  \
        }                                                                                                    \
        static __device__ __forceinline__ void step(float (&d)[N / 2], uint64_t a, uint64_t b) {             \
            asm volatile("{.reg .pred all; setp.eq.b32 all, 0, 0;\n"                                         \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" NAMES "}, " A ", " B      \
                         ", all, 1, 1, 0, 0;}\n"                                                             \
                         : OUTPUTS("+f")                                                                     \
                         : "l"(a), "l"(b));                                                                  \
        }                                                                                                    \
    };

#define PG_NAMES_32 PG_D0 "," PG_D1
#define PG_OUT_32(mode) PG_D(mode, 0), PG_D(mode, 8)
#define PG_NAMES_64 PG_D0 "," PG_D1 "," PG_D2 "," PG_D3
#define PG_OUT_64(mode) PG_D(mode, 0), PG_D(mode, 8), PG_D(mode, 16), PG_D(mode, 24)
#define PG_NAMES_128 PG_D0 "," PG_D1 "," PG_D2 "," PG_D3 "," PG_D4 "," PG_D5 "," PG_D6 "," PG_D7
#define PG_OUT_128(mode)                                                                                  \
    PG_OUT_64(mode), PG_D(mode, 32), PG_D(mode, 40), PG_D(mode, 48), PG_D(mode, 56)
PG_WGMMA(32, PG_NAMES_32, "%16", "%17", PG_OUT_32)
PG_WGMMA(64, PG_NAMES_64, "%32", "%33", PG_OUT_64)
PG_WGMMA(128, PG_NAMES_128, "%64", "%65", PG_OUT_128)

#undef PG_WGMMA
#undef PG_D
