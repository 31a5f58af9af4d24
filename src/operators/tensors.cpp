// Memory for one rank's inputs and outputs.
// Called by the bench, `tilewire run` and tests.
#include "operators/tensors.hpp"

#include <algorithm>
#include <cstring>

#include "tilewire/spi/operator.hpp"

namespace tilewire {

namespace {

int64_t bytes_of_tensor(const Tensor& tensor) { return tensor.rows * tensor.cols * bytes_of(tensor.dtype); }

std::shared_ptr<std::byte> host_memory(const Tensor& tensor) {
  return {new std::byte[static_cast<size_t>(bytes_of_tensor(tensor))], std::default_delete<std::byte[]>()};
}

Tensor dense_copy(const Tensor& tensor, const std::shared_ptr<std::byte>& memory) {
  return make_tensor(memory.get(), tensor.dtype, tensor.rows, tensor.cols);
}

}  // namespace

RankTensors::RankTensors(Group& group, const Problem& problem) : group_(group) {
  const int rank = group.team().rank;
  const std::vector<Buffer> buffers = find_operator(problem.op).buffers(problem, group.team().num_ranks);
  for (int i = 0; i < std::ssize(buffers); ++i) {
    const Buffer& buffer = buffers[i];
    const Shape shape = memory_shape_on(buffer, rank);
    Tensor tensor;
    if (std::ranges::find(problem.arena, buffer.name) != problem.arena.end()) {
      tensor = group.allocate(buffer.dtype, std::max(buffer.rows, shape.rows), buffer.cols);
      tensor.rows = shape.rows;
      tensor.cols = shape.cols;
    } else {
      memory_.push_back(group.new_memory(shape.rows * shape.cols * bytes_of(buffer.dtype)));
      tensor = make_tensor(memory_.back().get(), buffer.dtype, shape.rows, shape.cols);
    }
    if (buffer.scope == Scope::input) {
      inputs_.push_back(tensor);
      input_buffers_.push_back(i);
      continue;
    }
    outputs_.push_back(tensor);
    if (group.host_addresses_memory()) continue;
    copies_memory_.push_back(host_memory(tensor));
    copies_.push_back(dense_copy(tensor, copies_memory_.back()));
  }
}

void RankTensors::fill(const ReadRow& read) const {
  const int rank = group_.team().rank;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (group_.host_addresses_memory()) {
      fill_rows(read, input_buffers_[i], rank, inputs_[i]);
      continue;
    }
    const auto staging = host_memory(inputs_[i]);
    fill_rows(read, input_buffers_[i], rank, dense_copy(inputs_[i], staging));
    group_.copy(inputs_[i].data, staging.get(), bytes_of_tensor(inputs_[i]));
  }
}

void RankTensors::poison() const {
  // NOTE: all tensors of this class are dense.
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Tensor& host = group_.host_addresses_memory() ? outputs_[i] : copies_[i];
    const int64_t bytes = bytes_of_tensor(host);
    if (bytes > 0) std::memset(host.data, 0xFF, static_cast<size_t>(bytes));
    if (host.data != outputs_[i].data) group_.copy(outputs_[i].data, host.data, bytes);
  }
}

std::span<const Tensor> RankTensors::results() const {
  if (group_.host_addresses_memory()) return outputs_;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    group_.copy(copies_[i].data, outputs_[i].data, bytes_of_tensor(outputs_[i]));
  }
  return copies_;
}

}  // namespace tilewire
