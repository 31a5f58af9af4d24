// One rank's inputs and outputs of a problem, in the order of the operator's buffers.
// Used by the bench, `tilewire run` and tests.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "operators/random_data.hpp"
#include "tilewire/group.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

class RankTensors {
 public:
  /// Collective if the problem has buffers in the arena. The contents are undefined.
  RankTensors(Group& group, const Problem& problem);

  [[nodiscard]] std::span<const Tensor> inputs() const { return inputs_; }
  [[nodiscard]] std::span<const Tensor> outputs() const { return outputs_; }
  /// The current outputs in memory that the host can read: the tensors themselves, or copies that the next call
  /// overwrites.
  [[nodiscard]] std::span<const Tensor> results() const;
  /// Fill all inputs.
  void fill(const ReadRow& read) const;
  /// Set every bit of the outputs, which is NaN in every floating-point type.
  void poison() const;

 private:
  const Group& group_;
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::vector<int> input_buffers_;  ///< index of each input among the operator's buffers
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
  std::vector<std::shared_ptr<std::byte>> copies_memory_;
  std::vector<Tensor> copies_;  ///< of the outputs; used if the host cannot address them
};

}  // namespace tilewire
