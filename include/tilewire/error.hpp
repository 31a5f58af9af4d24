// The one error type of tilewire, and the report of a failed wait.
// Thrown by every part of the library; the command line turns its kind into an exit code.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace tilewire {

/// The kind of an error, which tells the caller what to do.
enum class ErrorKind {
  invalid_input,  ///< the caller's sizes, names, files or tensors break a rule
  unsupported,    ///< a valid request that this machine, backend or schedule cannot do
  refused_plan,   ///< the checker did not prove the plan
  wrong_result,   ///< a verification against the reference failed
  rank_lost,      ///< a peer died or left while this rank needed it
  timeout,        ///< a wait reached its deadline
  internal,       ///< a defect of tilewire
};

/// The wait that failed: its threshold and the last value of its signal.
struct WaitReport {
  std::string op{};    ///< operator, "all_gather_gemm"; outside operators the collective function, "make_op", "barrier"
  int rank = 0;        ///< rank that waited
  std::string lane{};  ///< lane that waited
  int64_t task = 0;    ///< index of the waiting task in its lane; -1: a wait outside of operators
  std::string signal{};  ///< name of the signal, "arrived[3] on rank 0"
  uint64_t wanted = 0;   ///< threshold, counted over all calls
  uint64_t seen = 0;     ///< value of the signal when the wait ended

  bool operator==(const WaitReport&) const = default;
};

/// The exception of every public function. `what()` names the rule broken and the value seen.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Error(ErrorKind kind, const std::string& message, WaitReport wait)
      : std::runtime_error(message), kind_(kind), wait_(std::move(wait)) {}

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  /// Set if a wait failed (rank_lost, timeout).
  [[nodiscard]] const std::optional<WaitReport>& wait() const noexcept { return wait_; }

 private:
  ErrorKind kind_;
  std::optional<WaitReport> wait_{};
};

}  // namespace tilewire
