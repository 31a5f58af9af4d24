// Plans that no schedule makes, by changes of plans that one does.
// Used by operators_test.cpp here, and by cuda/operators_test.cpp and cuda/tile_tables_test.cpp.
#pragma once

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::testing {

/// Replace every second library call by tiles of 128 x 128 in a lane of their own.
inline void make_tiles_of_calls(Plan& plan) {
  constexpr int64_t kSide = 128;
  std::vector<Lane> tiles;
  for (Lane& lane : plan.lanes) {
    if (lane.engine != Engine::library) continue;
    Lane& beside = tiles.emplace_back(Lane{.rank = lane.rank, .engine = Engine::tiles, .name = "beside"});
    std::vector<Task> calls;
    int number = 0;
    for (Task& task : lane.tasks) {
      if (task.kind != TaskKind::gemm_call || number++ % 2 == 0) {
        calls.push_back(std::move(task));
        continue;
      }
      const Region whole = task.writes[0].to;
      for (int64_t row = 0; row < whole.rows; row += kSide) {
        for (int64_t col = 0; col < whole.cols; col += kSide) {
          Task tile = task;
          tile.kind = TaskKind::compute;
          tile.gemm.tile_m = tile.gemm.tile_n = kSide;
          const int64_t rows = std::min(kSide, whole.rows - row);
          const int64_t cols = std::min(kSide, whole.cols - col);
          tile.reads[0].row += row, tile.reads[0].rows = rows;
          tile.reads[1].row += col, tile.reads[1].rows = cols;
          tile.writes[0].to.row += row, tile.writes[0].to.rows = rows;
          tile.writes[0].to.col += col, tile.writes[0].to.cols = cols;
          for (EpilogueStep& step : tile.epilogue) step.operand->col += col, step.operand->cols = cols;
          beside.tasks.push_back(std::move(tile));
        }
      }
    }
    lane.tasks = std::move(calls);
  }
  std::ranges::move(tiles, std::back_inserter(plan.lanes));
}

}  // namespace tilewire::testing
