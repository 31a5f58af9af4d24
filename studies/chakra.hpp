// A plan as execution traces: for each rank a graph of work, sends and receives, as plain data (docs/chakra.md).
// Used by chakra_files.cpp and tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::cli {

enum class ChakraKind {
  work,        ///< on the device; a node that only joins dependencies has one operation and one byte
  send,        ///< to a peer that has the receive of the same tag
  receive,     ///< from a peer that has the send of the same tag
  collective,  ///< this rank's part of a collective of all ranks
};

/// One node of a rank. It begins when all nodes that it depends on have ended.
struct ChakraNode {
  uint64_t id = 0;  ///< its place in the rank's list
  std::string name{};
  ChakraKind kind = ChakraKind::work;
  std::vector<uint64_t> data_deps{};  ///< nodes whose data it reads
  std::vector<uint64_t> ctrl_deps{};  ///< other nodes that must have ended: readiness, pace, the order of a serial lane
  int64_t num_ops = 1;                ///< of work: FLOP, at least 1
  int64_t memory_bytes = 1;           ///< of work: read and written in the rank's own memory, at least 1
  int64_t bytes = 0;                  ///< sent, received, or contributed to a collective
  int peer = 0;                       ///< of a send or a receive
  int tag = 0;                        ///< distinct for each message from one rank to another
  Collective collective = Collective::none;

  bool operator==(const ChakraNode&) const = default;
};

/// By rank. Dependencies are within a rank, on earlier nodes.
struct ChakraTraces {
  std::vector<std::vector<ChakraNode>> ranks{};

  bool operator==(const ChakraTraces&) const = default;
};

/// The traces of one call. The first node of each rank moves `begin_bytes` in its memory, before all nodes that depend
/// on nothing or on receives only: ASTRA-sim's clock does not accept a node that ends at time 0. Throws
/// Error(invalid_input) if the plan is malformed, Error(refused_plan) if it deadlocks.
[[nodiscard]] ChakraTraces chakra_of(const Plan& plan, int64_t begin_bytes = 1);

}  // namespace tilewire::cli
