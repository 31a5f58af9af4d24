// Memory of one rank's inputs and outputs.
// Called by the bench, `tilewire run` and tests.
#include "operators/tensors.hpp"

#include <algorithm>
#include <cstring>

#include "tilewire/operator.hpp"

namespace tilewire {

RankTensors::RankTensors(Group& group, const Problem& problem) : rank_(group.team().rank) {
  const std::vector<Buffer> buffers = find_operator(problem.op).buffers(problem, group.team().num_ranks);
  for (int i = 0; i < std::ssize(buffers); ++i) {
    const Buffer& buffer = buffers[i];
    const Shape shape = shape_on(buffer, rank_);
    Tensor tensor;
    if (std::ranges::find(problem.arena, buffer.name) != problem.arena.end()) {
      tensor = group.allocate(buffer.dtype, buffer.rows, buffer.cols);
      tensor.rows = shape.rows;
      tensor.cols = shape.cols;
    } else {
      const auto bytes = static_cast<size_t>(shape.rows * shape.cols * bytes_of(buffer.dtype));
      memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
      tensor = make_tensor(memory_.back().get(), buffer.dtype, shape.rows, shape.cols);
    }
    if (buffer.scope == Scope::input) {
      inputs_.push_back(tensor);
      input_buffers_.push_back(i);
    } else {
      outputs_.push_back(tensor);
    }
  }
}

void RankTensors::fill(const ReadRow& read) const {
  for (size_t i = 0; i < inputs_.size(); ++i) fill_rows(read, input_buffers_[i], rank_, inputs_[i]);
}

void RankTensors::poison() const {
  for (const Tensor& tensor : outputs_) {
    const int64_t element = bytes_of(tensor.dtype);
    for (int64_t row = 0; row < tensor.rows; ++row) {
      auto* at = static_cast<std::byte*>(tensor.data) + row * tensor.row_stride * element;
      std::memset(at, 0xFF, static_cast<size_t>(tensor.cols * element));
    }
  }
}

}  // namespace tilewire
