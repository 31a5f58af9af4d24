// Instantiates the GEMM kernel for every tile shape of one dtype and layout.
// Used by gemm_<dtype>_<layout>.cu.
#pragma once

#include <type_traits>
#include <utility>

#include "backends/cuda/gemm_bodies.hpp"
#include "backends/cuda/gemm_tiles.cuh"

namespace tilewire::cuda {

template <typename In, bool kBIsKN, size_t... kShape>
std::vector<GemmBodyEntry> gemm_bodies(std::index_sequence<kShape...>) {
  const DType dtype = std::is_same_v<In, __half> ? DType::fp16 : DType::bf16;
  return {{{dtype, kBIsKN, kTileShapes[kShape]},
           reinterpret_cast<const void*>(
               gemm_tiles_kernel<GemmBody<In, kBIsKN, kTileShapes[kShape].m, kTileShapes[kShape].n>>),
           GemmBody<In, kBIsKN, kTileShapes[kShape].m, kTileShapes[kShape].n>::kSharedBytes}...};
}

template <typename In, bool kBIsKN>
std::vector<GemmBodyEntry> gemm_bodies() {
  return gemm_bodies<In, kBIsKN>(std::make_index_sequence<kTileShapes.size()>{});
}

}  // namespace tilewire::cuda
