// The places of tiles' rows of A, and of their results: two places, several places, tensor maps in memory.
// A stand-alone program: one line per case, exit status 1 if any fails.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "gemm_case.cuh"
#include "tilewire/error.hpp"

namespace {

/// Every tile goes to three matrices; the third one in two parts with a border inside a box of 64 rows. `in_memory`:
/// more tensor maps than a launch carries.
void several_destinations(StoreVia via, bool in_memory = false) {
  Case c{.m = 200, .n = 328, .k = 192, .via = via};
  const Setup s(c);
  const size_t bytes = 2ul * c.m * c.n;
  const Memory second(bytes);
  const Memory third(bytes);
  CHECK(cudaMemset(second.data, 0xff, bytes));
  CHECK(cudaMemset(third.data, 0xff, bytes));
  HostTable host = plain_table(s.product());
  const uint16_t second_map = static_cast<uint16_t>(host.maps.size());
  host.maps.push_back(make_output_map({second.data, DType::bf16, c.m, c.n, c.n}));
  std::vector<WriteRecord> writes;
  for (TileRecord& tile : host.tiles) {
    const WriteRecord first = host.writes[tile.first_write];
    tile.first_write = static_cast<uint32_t>(writes.size());
    tile.num_writes = 4;
    WriteRecord w = first;
    writes.push_back(w);
    w.to = second.as<char>() + (static_cast<char*>(first.to) - s.out.as<char>());
    w.map = second_map;
    writes.push_back(w);
    w.to = third.as<char>() + (static_cast<char*>(first.to) - s.out.as<char>());
    w.via = StoreVia::pointer;
    w.rows = std::min<uint16_t>(37, first.rows);
    writes.push_back(w);
    w.first_row = w.rows;
    w.rows = static_cast<uint16_t>(first.rows - w.first_row);
    writes.push_back(w);
  }
  host.writes = writes;
  while (in_memory && host.maps.size() <= kMapsAtHand) host.maps.push_back(host.maps[second_map]);
  const DeviceTable table = upload(host);
  launch_gemm_tiles(s.kind(), s.launch(table), nullptr);
  CHECK(cudaDeviceSynchronize());
  const double error = s.error(s.out.data) + s.error(second.data) + s.error(third.data);
  report(std::string("three destinations, ") + (via == StoreVia::pointer ? "pointer" : "tensor") +
             (in_memory ? ", maps in memory" : ""),
         error < 3 * s.tolerance(), error);
}

/// Rows below the product's in the same matrix do not change, although the last tiles end inside a box of 64 rows.
void nothing_is_stored_below(const Case& c) {
  constexpr int kMore = 64;
  const Setup s(c);
  HostTable host = plain_table(s.product());
  const MatrixView taller{s.out.data, c.dtype, c.m + kMore, c.n, c.n};
  host.maps[2] = make_output_map(taller);
  host.maps[3] = make_rest_map(taller);
  const DeviceTable table = upload(host);
  launch_gemm_tiles(s.kind(), s.launch(table), nullptr);
  CHECK(cudaDeviceSynchronize());
  std::vector<uint16_t> below(static_cast<size_t>(kMore) * c.n);
  CHECK(cudaMemcpy(below.data(), s.out.as<uint16_t>() + static_cast<size_t>(c.m) * c.n, 2 * below.size(),
                   cudaMemcpyDeviceToHost));
  const bool untouched = std::ranges::all_of(below, [](uint16_t v) { return v == 0xffff; });
  const double error = s.error(s.out.data);
  report("nothing is stored below, " + c.name(), untouched && error < s.tolerance(), error);
}

/// Rows `first` to `end` of A, of the first two row tiles, are in another matrix, some rows further down: the last rows
/// of one tile and the first rows of the other. The result shows if the rows in A are used instead.
void rows_from_two_places(const Case& c, int first, int end) {
  constexpr int kDown = 3;
  const Setup s(c);
  const int tile_m = c.shape.m;
  const size_t row_bytes = 2ul * c.k;
  const int moved = end - first;
  const Memory other((kDown + moved) * row_bytes);
  CHECK(cudaMemset(other.data, 0xff, (kDown + moved) * row_bytes));
  CHECK(cudaMemcpy(other.as<char>() + kDown * row_bytes, s.a.as<char>() + first * row_bytes, moved * row_bytes,
                   cudaMemcpyDeviceToDevice));
  CHECK(cudaMemset(s.a.as<char>() + first * row_bytes, 0xff, moved * row_bytes));
  HostTable host = plain_table(s.product());
  const auto add_map = [&](const Memory& matrix, int64_t rows, int box) {
    host.maps.push_back(make_a_map({matrix.data, c.dtype, rows, c.k, c.k}, c.shape, box));
    return static_cast<uint16_t>(host.maps.size() - 1);
  };
  const uint16_t begins_here = add_map(s.a, c.m, first);
  const int of_second = end - tile_m;
  const uint16_t begins_there = add_map(other, kDown + moved, of_second);
  host.splits = {{kDown, add_map(other, kDown + moved, tile_m - first), static_cast<uint16_t>(first)},
                 {end, add_map(s.a, c.m, tile_m - of_second), static_cast<uint16_t>(of_second)}};
  for (TileRecord& tile : host.tiles) {
    if (tile.a_row >= 2 * tile_m) continue;
    const bool second = tile.a_row > 0;
    tile.split = second ? 2 : 1;
    tile.a_map = second ? begins_there : begins_here;
    if (second) tile.a_row = kDown + tile_m - first;
  }
  const DeviceTable table = upload(host);
  launch_gemm_tiles(s.kind(), s.launch(table), nullptr);
  CHECK(cudaDeviceSynchronize());
  const double error = s.error(s.out.data);
  report("rows from two places, " + std::to_string(first) + " to " + std::to_string(end) + ", " + c.name(),
         error < s.tolerance(), error);
}

void all_rows_from_two_places() {
  for (const TileShape& shape : kTileShapes) {
    if (!takes_splits(shape)) continue;
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      for (const bool kn : {false, true}) {
        Case c{.m = 3 * shape.m - 56, .n = 456, .k = 1000, .dtype = dtype, .b_is_kn = kn, .shape = shape};
        rows_from_two_places(c, shape.m / 2, shape.m + shape.m / 2);
        rows_from_two_places(c, 8, shape.m + 8);
        rows_from_two_places(c, shape.m - 8, 2 * shape.m - 8);
        c.m = 2 * shape.m - 50;  // the second tile has fewer rows
        rows_from_two_places(c, 72, shape.m + 40);
      }
    }
  }
}

}  // namespace

int main() {
  try {
    for (const int rows : {72, 104, 136, 200, 248}) nothing_is_stored_below({.m = 2 * rows, .shape = {rows, 128}});
    several_destinations(StoreVia::tensor_map);
    several_destinations(StoreVia::tensor_map, true);
    several_destinations(StoreVia::pointer);
    all_rows_from_two_places();
  } catch (const std::exception& e) {
    std::printf("FAIL exception: %s\n", e.what());
    return 1;
  }
  std::printf("%d failures\n", failures);
  return failures != 0;
}
