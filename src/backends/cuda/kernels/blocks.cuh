// stmatrix, ldmatrix and other accesses to shared memory for the results of the GEMM kernel.
// Used by gemm_cluster_split_k.cuh and gemm_chunk.cuh.
#pragma once

#include <cstdint>

namespace tilewire::cuda::ptx {

/// stmatrix: store four 8 x 8 matrices of 16-bit elements. Lane 8i + j has the address of row j of matrix i.
__device__ inline void store_blocks(uint32_t to, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r0), "r"(r1),
               "r"(r2), "r"(r3)
               : "memory");
}
/// The same, each matrix transposed.
__device__ inline void store_blocks_turned(uint32_t to, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r0),
               "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}
/// ldmatrix: the inverse of store_blocks.
__device__ inline void load_blocks(uint32_t from, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
/// The inverse of store_blocks_turned.
__device__ inline void load_blocks_turned(uint32_t from, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
__device__ inline float4 load_quad(uint32_t from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from));
  return v;
}
__device__ inline void store_word(uint32_t to, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}
__device__ inline void store_pair(uint32_t to, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x), "f"(y) : "memory");
}

}  // namespace tilewire::cuda::ptx
