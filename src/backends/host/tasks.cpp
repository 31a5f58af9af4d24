// Executes tasks: result in fp32, epilogue, one rounding, stores.
// Called by the workers of a program.
#include "backends/host/tasks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "backends/host/activations.hpp"
#include "backends/host/elements.hpp"
#include "core/convert.hpp"
#include "core/ll.hpp"
#include "core/text.hpp"

namespace tilewire::host {
namespace {

constexpr int64_t kPiece = 2048;  // columns of a row that fit into the L1 cache

void prefetch(const std::byte* from, int64_t bytes) {
  constexpr int64_t kLine = 64;
  constexpr int64_t kMost = 4096;
  for (int64_t line = 0; line < std::min(bytes, kMost); line += kLine) __builtin_prefetch(from + line);
}

Operand operand_of(const Block& block, bool transposed) { return {block.data, block.dtype, block.stride, transposed}; }

}  // namespace

/// One row per compute body.
TaskRunner::Run TaskRunner::runs_of(Body body) {
  struct Row {
    Body body;
    Run run;
  };
  static constexpr std::array kRows{Row{Body::gemm, &TaskRunner::multiply},
                                    Row{Body::pool, &TaskRunner::pool},
                                    Row{Body::norm, &TaskRunner::norm},
                                    Row{Body::route, &TaskRunner::route},
                                    Row{Body::grouped_gemm, &TaskRunner::grouped_gemm},
                                    Row{Body::select, &TaskRunner::select}};
  return std::ranges::find(kRows, body, &Row::body)->run;
}

void TaskRunner::begin_call(const Plan& plan, const Addresses& addresses, int gemm_threads,
                            const Callbacks& callbacks) {
  plan_ = &plan;
  addresses_ = &addresses;
  callbacks_ = &callbacks;
  gemm_.begin_call(gemm_threads, callbacks.check);
}

void TaskRunner::run(const Task& task) {
  switch (task.kind) {
    case TaskKind::compute:
    case TaskKind::gemm_call:
      return (this->*runs_of(task.body))(task);
    case TaskKind::copy:
      return copy(task);
    case TaskKind::reduce:
      return reduce(task);
    case TaskKind::fill:
      return fill(task);
    case TaskKind::sync:
      return;
    case TaskKind::collective_call:
      break;
  }
  fail(ErrorKind::internal, "the host cannot run a {}", static_cast<int>(task.kind));
}

bool TaskRunner::stored_by_library(const Task& task) const {
  // NOTE: tiles always go through fp32 scratch memory, so that their bits do not depend on the destination.
  if (task.kind != TaskKind::gemm_call || task.writes.size() != 1 || !task.epilogue.empty()) return false;
  const Write& write = task.writes[0];
  const Shape result = result_shape(task);
  const bool whole = write.to.rows == result.rows && write.to.cols == result.cols;
  return write.mode == WriteMode::store && whole && !is_ll(*plan_, write.to) &&
         gemm_.stores(plan_->buffers[task.reads[0].buffer].dtype, plan_->buffers[write.to.buffer].dtype);
}

void TaskRunner::multiply(const Task& task) {
  const Shape shape = result_shape(task);
  if (shape.rows == 0 || shape.cols == 0) return;
  prepare_end(task);
  int64_t first_row = 0;
  for (size_t i = 0; i < task.reads.size(); ++i) {
    if (i == 1) continue;
    const Block a = addresses_->block(task.reads[i]);
    multiply_rows(task, a, first_row);
    first_row += a.rows;
  }
}

void TaskRunner::multiply_rows(const Task& task, const Block& a, int64_t first_row) {
  constexpr int64_t kScratch = 4 << 20;  // elements; bounds the scratch memory of a whole GEMM
  const int64_t results = result_shape(task).cols;
  const int64_t cols = joins_columns(task.epilogue) ? 2 * results : results;
  if (a.rows == 0) return;
  Product product{a.rows, cols, a.cols, operand_of(a, false),
                  operand_of(addresses_->block(task.reads[1]), task.gemm.b_layout == BLayout::nk)};
  if (stored_by_library(task)) {
    product.c = targets_[0].data;
    product.c_dtype = targets_[0].dtype;
    product.c_stride = targets_[0].stride;
    return gemm_.multiply(product);
  }
  const int64_t most = std::max<int64_t>(16, kScratch / cols);
  product.c_stride = cols;
  for (int64_t begin = 0; begin < a.rows; begin += most) {
    product.m = std::min(most, a.rows - begin);
    product.a.data = a.at(begin, 0);
    // Two more rows for the sums of tiles with addends.
    float* values = scratch((product.m + 2) * cols);
    product.c = values;
    gemm_.multiply(product);
    for (int64_t row = 0; row < product.m; ++row) {
      const int64_t of_result = first_row + begin + row;
      float* sums = values + row * cols;
      if (!task.addends.empty()) sums = complete(task, of_result, sums, values + product.m * cols);
      finish(task, of_result, 0, results, sums);
    }
  }
}

float* TaskRunner::complete(const Task& task, int64_t row, float* product, float* spare) {
  const DType dtype = plan_->buffers[task.addends[0].buffer].dtype;
  const int64_t cols = result_shape(task).cols;
  float* sums = spare;
  float* loaded = spare + cols;
  row_bytes_.resize(static_cast<size_t>(cols * bytes_of(dtype)));
  store_row(product, cols, row_bytes_.data(), dtype);
  for (int64_t i = 0; i <= std::ssize(task.addends); ++i) {
    const std::byte* from = row_bytes_.data();
    if (i != task.product_place) {
      const Region& addend = task.addends[i - (i > task.product_place ? 1 : 0)];
      from = addresses_->block(addend).at(row, 0);
    }
    if (i == 0) {
      load_row(from, dtype, cols, sums);
    } else {
      add_row(from, dtype, cols, sums, loaded);
    }
  }
  return sums;
}

void TaskRunner::pool(const Task& task) {
  const Region& indices = task.reads[1];
  prepare_end(task);
  sources_.clear();
  for (const Region& read : task.reads) sources_.push_back(addresses_->block(read));
  float* sums = scratch(2 * sources_[0].cols);
  if (!is_grouped(plan_->buffers[indices.buffer])) {
    for (int64_t row = 0; row < indices.rows; ++row) pool_row(task, row, sums);
    return;
  }
  for (int64_t group = 0; group < indices.rows; ++group) {
    const Range rows = addresses_->rows_of_group(indices.rank, indices.buffer, indices.row + group);
    for (int64_t row = rows.begin; row < rows.end; ++row) pool_row(task, row, sums);
  }
}

void TaskRunner::pool_row(const Task& task, int64_t row, float* sums) {
  const Block& table = sources_[0];
  const Block& indices = sources_[1];
  float* spare = sums + table.cols;
  callbacks_->check();
  const auto* list = reinterpret_cast<const int32_t*>(indices.at(row, 0));
  // Nothing to add.
  const auto adds = [](const Write& write) { return write.mode == WriteMode::accumulate; };
  if ((indices.cols == 0 || list[0] == -1) && std::ranges::all_of(task.writes, adds)) return;
  std::fill_n(sums, table.cols, 0.0F);
  for (int64_t i = 0; i < indices.cols && list[i] != -1; ++i) {
    require(list[i] >= 0 && list[i] < table.rows, "pool: index {} of a table of {} rows", list[i], table.rows);
    if (sources_.size() > 2) {
      load_row(table.at(list[i], 0), table.dtype, table.cols, spare);
      const float weight = *reinterpret_cast<const float*>(sources_[2].at(row, i));
      for (int64_t col = 0; col < table.cols; ++col) sums[col] += weight * spare[col];
    } else if (i == 0) {
      load_row(table.at(list[i], 0), table.dtype, table.cols, sums);
    } else {
      add_row(table.at(list[i], 0), table.dtype, table.cols, sums, spare);
    }
  }
  finish(task, row, 0, table.cols, sums);
}

void TaskRunner::norm(const Task& task) {
  const Block rows = addresses_->block(task.reads[0]);
  const int64_t cols = rows.cols;
  prepare_end(task);
  const bool scales = quantises(task.norm);
  float* values = scratch(3 * cols + 1);  // a row and its scale
  float* weight = values + cols + 1;
  float* bias = weight + cols;
  const auto load = [&](size_t read, float* to) {
    const Block from = addresses_->block(task.reads[read]);
    load_row(from.data, from.dtype, cols, to);
  };
  load(1, weight);
  if (task.norm.kind == NormKind::layer) load(2, bias);
  for (int64_t row = 0; row < rows.rows; ++row) {
    callbacks_->check();
    load_row(elements_of(task.reads[0], rows, row, 0, cols), rows.dtype, cols, values);
    normalise(task.norm, values, cols, weight, task.norm.kind == NormKind::layer ? bias : nullptr);
    if (scales) values[cols] = quantise(*task.norm.out_dtype, values, cols);
    finish(task, row, 0, cols + (scales ? 1 : 0), values);
  }
}

void TaskRunner::copy(const Task& task) {
  const Block from = addresses_->block(task.reads[0]);
  const bool plain =
      task.epilogue.empty() && std::none_of(task.writes.begin(), task.writes.end(),
                                            [](const Write& write) { return write.mode == WriteMode::accumulate; });
  if (!plain) return reduce(task);
  const bool to_ll = std::ranges::any_of(task.writes, [&](const Write& write) { return is_ll(*plan_, write.to); });
  if (from.ll || to_ll) return copy_rows(task);
  for (const Write& write : task.writes) {
    const Block to = addresses_->block(write.to);
    copy_block({from.at(write.first_row, 0), from.dtype, to.rows, from.cols, from.stride}, to);
  }
}

void TaskRunner::copy_rows(const Task& task) {
  const Block from = addresses_->block(task.reads[0]);
  prepare_end(task);
  for (int64_t row = 0; row < from.rows; ++row) {
    callbacks_->check();
    const std::byte* elements = elements_of(task.reads[0], from, row, 0, from.cols);
    for (size_t i = 0; i < task.writes.size(); ++i) {
      const Block& to = targets_[i];
      const int64_t target_row = row - task.writes[i].first_row;
      if (target_row < 0 || target_row >= to.rows) continue;
      if (to.ll) {
        publish(elements, from.cols, to.at(target_row, 0), to.dtype);
      } else {
        std::memcpy(to.at(target_row, 0), elements, static_cast<size_t>(from.cols * bytes_of(to.dtype)));
      }
    }
  }
}

void TaskRunner::reduce(const Task& task) {
  const Shape shape = result_shape(task);
  prepare_end(task);
  sources_.clear();
  for (const Region& read : task.reads) sources_.push_back(addresses_->block(read));
  float* sums = scratch(2 * kPiece);
  for (int64_t row = 0; row < shape.rows; ++row) {
    callbacks_->check();
    // Prefetch the next row: rows of a tile are on different pages, where the hardware prefetcher stops.
    if (row + 1 < shape.rows) {
      for (const Block& from : sources_) prefetch(from.at(row + 1, 0), shape.cols * bytes_of(from.dtype));
    }
    for (int64_t col = 0; col < shape.cols; col += kPiece) {
      const int64_t n = std::min(kPiece, shape.cols - col);
      for (size_t i = 0; i < sources_.size(); ++i) {
        const Block& from = sources_[i];
        const std::byte* elements = elements_of(task.reads[i], from, row, col, n);
        if (i > 0) {
          add_row(elements, from.dtype, n, sums, sums + kPiece);
        } else {
          load_row(elements, from.dtype, n, sums);
        }
      }
      finish(task, row, col, n, sums);
    }
  }
}

void TaskRunner::fill(const Task& task) {
  prepare_end(task);
  for (size_t i = 0; i < task.writes.size(); ++i) {
    const Block& to = targets_[i];
    float* values = scratch(to.cols);
    std::fill_n(values, to.cols, static_cast<float>(task.value));
    for (int64_t row = 0; row < to.rows; ++row) {
      if (task.writes[i].mode == WriteMode::accumulate) {
        accumulate(values, to.cols, to.at(row, 0), to.dtype);
      } else if (row == 0 || to.ll) {
        store(values, to.cols, to.at(row, 0), to);
      } else {
        std::memcpy(to.at(row, 0), to.at(0, 0), static_cast<size_t>(to.cols * bytes_of(to.dtype)));
      }
    }
  }
}

void TaskRunner::prepare_end(const Task& task) {
  targets_.clear();
  for (const Write& write : task.writes) targets_.push_back(addresses_->block(write.to));
  biases_.clear();
  for (const EpilogueStep& step : task.epilogue) {
    std::vector<float> values;
    if (step.kind == EpilogueKind::bias) {
      const Block bias = addresses_->block(*step.operand);
      values.resize(static_cast<size_t>(bias.cols));
      load_row(bias.data, bias.dtype, bias.cols, values.data());
    }
    biases_.push_back(std::move(values));
  }
}

void TaskRunner::finish(const Task& task, int64_t row, int64_t col, int64_t n, float* values) {
  apply_epilogue(task, row, col, n, values);
  for (size_t i = 0; i < task.writes.size(); ++i) {
    const Write& write = task.writes[i];
    const Block& to = targets_[i];
    const int64_t target_row = row - write.first_row;
    const int64_t begin = std::max(col, write.first_col);
    const int64_t count = std::min(col + n, write.first_col + to.cols) - begin;
    if (target_row < 0 || target_row >= to.rows || count <= 0) continue;
    auto* target = to.at(target_row, begin - write.first_col);
    if (write.mode == WriteMode::store) {
      store(values + (begin - col), count, target, to);
    } else {
      accumulate(values + (begin - col), count, target, to.dtype);
    }
  }
}

void TaskRunner::store(const float* values, int64_t n, std::byte* to, const Block& of) {
  if (!of.ll) return store_row(values, n, to, of.dtype);
  row_bytes_.resize(static_cast<size_t>(n * bytes_of(of.dtype)));
  store_row(values, n, row_bytes_.data(), of.dtype);
  publish(row_bytes_.data(), n, to, of.dtype);
}

const std::byte* TaskRunner::elements_of(const Region& region, const Block& from, int64_t row, int64_t col, int64_t n) {
  if (!from.ll) return from.at(row, col);
  const int64_t size = bytes_of(from.dtype);
  taken_.resize(static_cast<size_t>(n * size));
  int64_t deadline_ns = 0;
  for (int64_t had = 0; had < n;) {
    had += take_published(from.at(row, col + had), n - had, taken_.data() + had * size, from.dtype);
    if (had == n) break;
    callbacks_->look_again({region.rank, region.buffer, region.row + row, 1, region.col + col + had, n - had},
                           deadline_ns);
  }
  return taken_.data();
}

void TaskRunner::apply_epilogue(const Task& task, int64_t row, int64_t col, int64_t n, float* values) {
  for (size_t step = 0; step < task.epilogue.size(); ++step) {
    const EpilogueStep& what = task.epilogue[step];
    switch (what.kind) {
      case EpilogueKind::bias: {
        const float* bias = biases_[step].data() + col;
        for (int64_t i = 0; i < n; ++i) values[i] += bias[i];
        break;
      }
      case EpilogueKind::residual: {
        const Block residual = addresses_->block(*what.operand);
        row_.resize(static_cast<size_t>(n));
        add_row(residual.at(row, col), residual.dtype, n, values, row_.data());
        break;
      }
      case EpilogueKind::gelu:
        activate(Activation::gelu, values, n);
        break;
      case EpilogueKind::relu:
        activate(Activation::relu, values, n);
        break;
      case EpilogueKind::swiglu_pairs:
        activate(Activation::swiglu_pairs, values, n);
        break;
      case EpilogueKind::scale:
        scale(values, n, static_cast<float>(what.value));
        break;
    }
  }
}

float* TaskRunner::scratch(int64_t elements) {
  if (std::ssize(scratch_) < elements) scratch_.resize(static_cast<size_t>(elements));
  return scratch_.data();
}

}  // namespace tilewire::host
