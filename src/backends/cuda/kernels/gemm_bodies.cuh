// Instantiates the GEMM kernel for every tile shape of one dtype and layout.
// Used by gemm_<dtype>_<layout>.cu.
#pragma once

#include <type_traits>
#include <utility>

#include "backends/cuda/kernels/gemm_bodies.hpp"
#include "backends/cuda/kernels/gemm_tiles.cuh"

namespace tilewire::cuda {

/// The table entry of one body.
template <typename Body>
GemmBodyEntry gemm_body() {
  const DType dtype = std::is_same_v<typename Body::In, __half> ? DType::fp16 : DType::bf16;
  return {{dtype, Body::kNMajor, Body::kShape, Body::kSums, Body::kSteps && fills_registers(Body::kShape),
           Body::kGated    ? Groups::gated
           : Body::kGroups ? Groups::plain
                           : Groups::none},
          reinterpret_cast<const void*>(gemm_tiles_kernel<Body>),
          Body::kSharedBytes};
}

/// The bodies of a shape: without sums, and with sums if the shape allows them. A shape that fills the registers has a
/// third body, with sums and all epilogue steps.
template <typename In, bool kBIsKN, size_t kShape>
void add_gemm_bodies(std::vector<GemmBodyEntry>& bodies) {
  constexpr TileShape kTile =
      kShape < kTileShapes.size() ? kTileShapes[kShape] : kRuntimeRowShapes[kShape - kTileShapes.size()];
  bodies.push_back(gemm_body<GemmBody<In, kBIsKN, kTile.m, kTile.n, false, false>>());
  if constexpr (most_partials(kTile) > 0)
    bodies.push_back(gemm_body<GemmBody<In, kBIsKN, kTile.m, kTile.n, true, false>>());
  if constexpr (fills_registers(kTile))
    bodies.push_back(gemm_body<GemmBody<In, kBIsKN, kTile.m, kTile.n, true, true>>());
}

template <typename In, bool kBIsKN, size_t... kShape>
std::vector<GemmBodyEntry> gemm_bodies(std::index_sequence<kShape...>) {
  std::vector<GemmBodyEntry> bodies;
  (add_gemm_bodies<In, kBIsKN, kShape>(bodies), ...);
  return bodies;
}

/// The bodies of grouped GEMMs.
template <typename In, bool kBIsKN>
std::vector<GemmBodyEntry> group_bodies() {
  return {gemm_body<GemmBody<In, kBIsKN, kWideGroups.m, kWideGroups.n, false, false, Groups::plain>>(),
          gemm_body<GemmBody<In, kBIsKN, kNarrowGroups.m, kNarrowGroups.n, false, false, Groups::plain>>(),
          gemm_body<GemmBody<In, kBIsKN, kWideGroups.m, kWideGroups.n, false, false, Groups::gated>>()};
}

template <typename In, bool kBIsKN>
std::vector<GemmBodyEntry> gemm_bodies() {
  return gemm_bodies<In, kBIsKN>(std::make_index_sequence<kTileShapes.size() + kRuntimeRowShapes.size()>{});
}

}  // namespace tilewire::cuda
