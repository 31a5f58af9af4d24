// The sm_90a instructions that the kernels use, each as one function: barriers, tensor copies, fences, registers.
// Included by device code only; wgmma.cuh has the matrix instructions.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace tilewire::cuda::ptx {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// --- threads, clusters, registers -----------------------------------------------------------------------------------

/// threadIdx.x, read at this point. The volatile asm keeps the compiler from computing values that depend on it
/// earlier, which would take registers and lengthen the code at the start of a launch.
__device__ inline uint32_t thread_here() {
  uint32_t t;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
  return t;
}
/// True for one thread of a full warp, always the same one. NOTE: the compiler knows that it is one thread, and omits
/// the loop over threads that it otherwise puts around each tensor copy.
__device__ inline bool elect() {
  uint32_t elected;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(elected));
  return elected != 0;
}
__device__ inline uint32_t cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ inline uint32_t cluster_size() {
  uint32_t n;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  return n;
}
/// A full warp arrives; cluster_wait waits until all warps of the cluster have arrived. They order only mbarriers that
/// were initialised before barrier_init_fence: a release at cluster scope would be a fence of the whole GPU (some 3,000
/// cycles).
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
__device__ inline void cluster_meet() {
  cluster_arrive();
  cluster_wait();
}
/// Programmatic dependent launch: wait until the kernels before this one in its stream are complete, and their writes
/// are visible. Nothing, if the launch allows no early begin.
__device__ inline void await_earlier_kernels() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// Let the kernel behind this one begin, if its launch allows that, when all CTAs of this grid have called this.
__device__ inline void let_next_kernel_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// `threads` threads of the CTA, in whole warps, meet at one of its 16 named barriers.
__device__ inline void cta_meet(int barrier, int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// The same; whether `says` holds for at least one of the threads.
__device__ inline bool cta_any(int barrier, int threads, bool says) {
  uint32_t some = 0;
  asm volatile(
      "{\n.reg .pred p, q;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "barrier.cta.red.or.pred q, %2, %3, p;\n"
      "selp.u32 %0, 1, 0, q;\n}"
      : "=r"(some)
      : "r"(static_cast<uint32_t>(says)), "r"(barrier), "r"(threads)
      : "memory");
  return some != 0;
}
/// Arrive at the same barrier for one warp, without waiting.
__device__ inline void cta_arrive(int barrier, int threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
__device__ inline uint64_t global_time_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

/// The low 32 bits of the time, which wrap after 4.29 s.
__device__ inline uint32_t global_time_low() {
  uint32_t t;
  asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(t));
  return t;
}

// --- mbarriers -----------------------------------------------------------------------------------------------------

__device__ inline void barrier_init(uint64_t* bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(arrivals) : "memory");
}
/// Make initialised mbarriers visible to the cluster and to asynchronous copies. Call cluster_arrive after it.
__device__ inline void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void barrier_arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}
/// Arrive on the same mbarrier of CTA `cta` of the cluster. It orders reads by tensor cores, but no generic accesses: a
/// release at cluster scope would be a fence of the whole GPU.
__device__ inline void barrier_arrive_at(uint64_t* bar, uint32_t cta) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(bar)),
      "r"(cta)
      : "memory");
}
/// Arrive, and let the phase also wait for `bytes` of asynchronous copies.
__device__ inline void barrier_arrive_expect(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)),
               "r"(bytes)
               : "memory");
}
/// The shared::cluster address of `p` in CTA `cta` of the cluster.
__device__ inline uint32_t address_in(const void* p, uint32_t cta) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(p)), "r"(cta));
  return remote;
}
/// Store to shared memory of a CTA of the cluster; its mbarrier `bar` counts the bytes. Both addresses: address_in.
__device__ inline void store_in(uint32_t to, uint32_t value, uint32_t bar) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(value),
               "r"(bar)
               : "memory");
}
__device__ inline void store_in(uint32_t to, float x, float y, float z, float w, uint32_t bar) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "f"(x), "f"(y), "f"(z), "f"(w), "r"(bar)
      : "memory");
}
/// Whether the phase of this parity is complete; waits up to 10 ms for it.
__device__ inline bool barrier_try_wait(uint64_t* bar, uint32_t phase) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2, 10000000;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(shared_address(bar)), "r"(phase)
      : "memory");
  return done != 0;
}
/// Whether the phase of this parity is complete; does not wait.
__device__ inline bool barrier_test(uint64_t* bar, uint32_t phase) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(shared_address(bar)), "r"(phase)
      : "memory");
  return done != 0;
}
/// Whether `value` holds for all 128 threads of a warpgroup; `id`: a named barrier, 1 to 15, one per warpgroup.
__device__ inline bool all_of_group(bool value, int id) {
  uint32_t all;
  asm volatile(
      "{\n.reg .pred p, q;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "barrier.cta.red.and.pred q, %2, 128, p;\n"
      "selp.u32 %0, 1, 0, q;\n}"
      : "=r"(all)
      : "r"(static_cast<uint32_t>(value)), "r"(id)
      : "memory");
  return all != 0;
}
/// Wait until the phase of this parity is complete.
__device__ inline void barrier_wait(uint64_t* bar, uint32_t phase) {
  while (!barrier_try_wait(bar, phase)) {
  }
}
// --- tensor copies -------------------------------------------------------------------------------------------------

/// Order this thread's generic accesses and accesses of asynchronous copies and tensor cores, both ways.
__device__ inline void fence_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
/// As fence_async, for shared memory of this CTA alone.
__device__ inline void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/// Needed once per CTA for a tensor map in global memory that was written before the launch.
__device__ inline void fence_tensor_map(const CUtensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}
/// Prefetch the cache line of `from`.
__device__ inline void prefetch_line(const void* from) { asm volatile("prefetch.global.L1 [%0];" ::"l"(from)); }

__device__ inline void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ inline void tensor_load(uint32_t to, const CUtensorMap* map, uint64_t* bar, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(to),
      "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y)
      : "memory");
}
/// As tensor_load, with an L2 eviction priority (Eviction).
__device__ inline void tensor_load(uint32_t to, const CUtensorMap* map, uint64_t* bar, int x, int y, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y), "l"(policy)
      : "memory");
}
/// The same of a map of four dimensions.
__device__ inline void tensor_load_4d(uint32_t to, const CUtensorMap* map, uint64_t* bar, int x, int y, int z, int w,
                                      uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy)
      : "memory");
}
/// Multicast: load the box to the same address in every CTA of the mask `ctas`, and count it on the mbarrier of each.
__device__ inline void tensor_load_shared(uint32_t to, const CUtensorMap* map, uint64_t* bar, int x, int y,
                                          uint64_t policy, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(to),
      "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y), "h"(ctas), "l"(policy)
      : "memory");
}
__device__ inline void tensor_store(const CUtensorMap* map, const void* from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(shared_address(from)), "r"(x), "r"(y)
               : "memory");
}
/// Add to the contents of memory, in the map's dtype.
__device__ inline void tensor_add(const CUtensorMap* map, const void* from, int x, int y) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(shared_address(from)), "r"(x), "r"(y)
               : "memory");
}
/// Copy consecutive bytes. Their number and both addresses are multiples of 16.
__device__ inline void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(bar))
               : "memory");
}
__device__ inline void bulk_store(void* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
}
/// As bulk_store, but add to the contents of memory.
__device__ inline void bulk_add(__nv_bfloat16* to, const void* from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void bulk_add(__half* to, const void* from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void bulk_add(float* to, const void* from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Wait until all but the newest kDeferred groups of this thread have read their shared memory.
template <int kDeferred>
__device__ inline void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kDeferred) : "memory");
}
/// Wait until all groups of this thread are complete: their writes are then visible to this thread.
__device__ inline void bulk_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

}  // namespace tilewire::cuda::ptx
