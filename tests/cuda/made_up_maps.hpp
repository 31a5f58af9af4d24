// Fake tensor maps that contain the arguments of their request. Included by one file of a program.
// Used by tile_tables_test.cpp and dealt_tiles_test.cpp.
#pragma once

#include <cstring>

#include "backends/cuda/runtime/driver.hpp"
#include "backends/cuda/tables/lane_tables.hpp"

namespace tilewire::cuda {

/// The arguments of a map's request.
struct AskedMap {
  void* data;
  uint64_t rows;
  uint32_t box_rows;
};

inline CUresult CUDAAPI note_map(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void* data, const cuuint64_t* dims,
                                 const cuuint64_t*, const cuuint32_t* box, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const AskedMap asked{data, dims[1], box[1]};
  std::memcpy(map, &asked, sizeof asked);
  return CUDA_SUCCESS;
}

inline AskedMap asked_for(const RankTables& tables, uint32_t map) {
  AskedMap asked{};
  std::memcpy(&asked, &tables.gemm.maps.at(map), sizeof asked);
  return asked;
}

/// NOTE: the linker takes this one instead of the library's, which needs a driver.
Driver load_driver() {
  Driver driver;
  driver.tensor_map_encode_tiled = note_map;
  return driver;
}

}  // namespace tilewire::cuda
