// Thin wrappers around the instructions that C++ has no words for; sm_80 and later.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// d = a * b + d. a: 16x16 row-major, b: 16x8 column-major, both f16; d: 16x8 f32.
__device__ __forceinline__ void mma_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8x8 tiles of f16; lane l gives the address of row l & 7 of tile l >> 3.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&d)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&d)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x2(uint32_t (&d)[2], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(address)
                 : "memory");
}

// 16 bytes from global to shared memory, past L1.
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void* global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

// The same, or 16 zero bytes when `keep` is false; `global` must be a valid address all the same.
__device__ __forceinline__ void cp_async_16_or_zero(uint32_t shared, const void* global, bool keep) {
    const uint32_t bytes = keep ? 16u : 0u;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `PENDING` of this thread's groups are unfinished.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// How long lines of a global read shall stay in L2: weights that one launch reads once should leave first.
__device__ __forceinline__ uint64_t l2_evict_first() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ uint64_t l2_evict_normal() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// cp_async_16 with such a policy, OFFSET bytes further on both sides.
template <int OFFSET>
__device__ __forceinline__ void cp_async_16_hint(uint32_t shared, const void* global, uint64_t policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0 + %3], [%1 + %3], 16, %2;" ::"r"(shared), "l"(global),
                 "l"(policy), "n"(OFFSET)
                 : "memory");
}

// Brings a line of 128 bytes into L2.
__device__ __forceinline__ void prefetch_l2(const void* global) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

// ---- overlapping kernels ------------------------------------------------------------------------------------------
// From sm_90 on some kernels of a decode step start while the ones before them still run. What such a kernel does
// before `wait_for_earlier_kernels` may touch only what no kernel of a step writes: weights, directories, orders. Every
// thread of it waits, also one without work: the next kernel takes the end of this one for the end of all before it.
// `src/overlap.rs` names these kernels. A kernel that any of them may follow lets it start.

// Whether kernels overlap at all on the chip that is compiled for.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kKernelsOverlap = true;
#else
constexpr bool kKernelsOverlap = false;
#endif

__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Everything that earlier kernels have written is there afterwards.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- sm_90 and later ---------------------------------------------------------------------------------------------
// Barriers that count bytes, and bulk copies that complete them; elsewhere without effect, and never called.

__device__ __forceinline__ void bytes_barrier_init(uint32_t barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
#endif
}

// Makes fresh barriers visible to the copy engine.
__device__ __forceinline__ void bytes_barrier_init_fence() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Copies `bytes` (a multiple of 16, not 0) and lets this phase of the barrier end when they have arrived. All lanes of
// a warp together, with the same arguments; one of them does it.
__device__ __forceinline__ void bulk_copy_hint(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier,
                                               uint64_t policy) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n"
        ".reg .pred one;\n"
        "elect.sync _|one, 0xFFFFFFFF;\n"
        "@one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%3], %2;\n"
        "@one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;\n"
        "}\n" ::"r"(shared),
        "l"(global), "r"(bytes), "r"(barrier), "l"(policy)
        : "memory");
#endif
}

// Waits for the end of the phase with this parity.
__device__ __forceinline__ void bytes_barrier_wait(uint32_t barrier, uint32_t parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
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
#endif
}
