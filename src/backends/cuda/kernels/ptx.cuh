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

/// threadIdx.x, read where it stands: what follows from it is not computed ahead, where it would take registers and
/// lengthen the code that a launch begins with.
__device__ inline uint32_t thread_here() {
  uint32_t t;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
  return t;
}
/// True for one thread of a warp that is here whole, always the same. NOTE: the compiler knows that this is one thread,
/// and leaves out the loop over threads that it puts around each tensor copy otherwise.
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
/// A warp, whole, is as far as here; cluster_wait waits until all warps of the cluster are. Orders nothing but barriers
/// that were initialised before barrier_init_fence: a release at cluster scope would cost a fence of the whole GPU,
/// some 3,000 cycles.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
__device__ inline void cluster_meet() {
  cluster_arrive();
  cluster_wait();
}
/// So many threads of the CTA, in whole warps, meet at one of its 16 barriers.
__device__ inline void cta_meet(int barrier, int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// One of the warps that meet there, which goes on at once.
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

/// Its low word: 4.29 s.
__device__ inline uint32_t global_time_low() {
  uint32_t t;
  asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(t));
  return t;
}

// --- mbarriers
// --------------------------------------------------------------------------------------------------------

__device__ inline void barrier_init(uint64_t* bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(arrivals) : "memory");
}
/// Makes initialised barriers visible to the cluster and to the copy engine; a cluster_arrive follows.
__device__ inline void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void barrier_arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}
/// Arrive on the same barrier of a CTA of the cluster. Orders what the tensor cores have read and nothing generic: a
/// release at cluster scope would cost a fence of the whole GPU.
__device__ inline void barrier_arrive_at(uint64_t* bar, uint32_t cta) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(bar)),
      "r"(cta)
      : "memory");
}
/// Arrive, and let the phase also wait for `bytes` of tensor copies.
__device__ inline void barrier_arrive_expect(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)),
               "r"(bytes)
               : "memory");
}
/// The address of `p` in CTA `cta` of the cluster.
__device__ inline uint32_t address_in(const void* p, uint32_t cta) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(p)), "r"(cta));
  return remote;
}
/// Store to shared memory of a CTA of the cluster, whose barrier `bar` counts the bytes: both addresses of address_in.
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
/// Whether the phase of this parity is over; sleeps up to 10 ms until it is.
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
/// Whether the phase of this parity is over; does not wait.
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
/// Whether `value` holds for all 128 threads of a warpgroup; `id`: 1 to 15, one per warpgroup.
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
/// Wait until the phase of this parity is over.
__device__ inline void barrier_wait(uint64_t* bar, uint32_t phase) {
  while (!barrier_try_wait(bar, phase)) {
  }
}
// --- tensor copies
// ----------------------------------------------------------------------------------------------------

/// Orders generic accesses of this thread against the copy engine's and tensor cores', both ways.
__device__ inline void fence_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
/// As fence_async, for shared memory of this CTA alone.
__device__ inline void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/// Needed once per CTA for a tensor map in global memory that was written before the launch.
__device__ inline void fence_tensor_map(const CUtensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}
/// Ask for the line of `from`, which will be read soon.
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
/// As tensor_load, with a policy for the L2 cache (Eviction).
__device__ inline void tensor_load(uint32_t to, const CUtensorMap* map, uint64_t* bar, int x, int y, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y), "l"(policy)
      : "memory");
}
/// The box goes to the same place of every CTA in `ctas` (inside the cluster) and counts on each one's barrier.
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
/// Adds to what is there, in the map's dtype.
__device__ inline void tensor_add(const CUtensorMap* map, const void* from, int x, int y) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(shared_address(from)), "r"(x), "r"(y)
               : "memory");
}
/// Bytes side by side, a multiple of 16 from and to addresses that are.
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
/// As bulk_store, adding to what is there.
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
/// Until all but the newest kDeferred groups of this thread have read their shared memory.
template <int kDeferred>
__device__ inline void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kDeferred) : "memory");
}
/// Until all groups of this thread are complete: their writes are visible to this thread.
__device__ inline void bulk_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

}  // namespace tilewire::cuda::ptx
