// A plan as execution traces: a graph of work, sends and receives for each rank, as plain data. docs/chakra.md says
// what becomes what. Used by chakra_files.cpp and tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::cli {

enum class ChakraKind {
  work,        ///< on the device; with one operation and one byte, what only joins dependencies
  send,        ///< to a peer that has the receive of the same tag
  receive,     ///< from a peer that has the send of the same tag
  collective,  ///< my part of one of all ranks
};

/// What one rank does at one time. Begins when all that it depends on has ended.
struct ChakraNode {
  uint64_t id = 0;  ///< its place in the rank's list
  std::string name{};
  ChakraKind kind = ChakraKind::work;
  std::vector<uint64_t> data_deps{};  ///< whose data it reads
  std::vector<uint64_t> ctrl_deps{};  ///< after which it may begin: readiness, pace, the order of a serial lane
  int64_t num_ops = 1;                ///< of work: FLOP, at least 1
  int64_t memory_bytes = 1;           ///< of work: read and written in the rank's own memory, at least 1
  int64_t bytes = 0;                  ///< sent, received, or brought to a collective
  int peer = 0;                       ///< of a send or a receive
  int tag = 0;                        ///< distinct for each message from one rank to another
  Collective collective = Collective::none;

  bool operator==(const ChakraNode&) const = default;
};

/// By rank; dependencies stay within a rank and point to nodes before.
struct ChakraTraces {
  std::vector<std::vector<ChakraNode>> ranks{};

  bool operator==(const ChakraTraces&) const = default;
};

/// The traces of one call. Each rank's first node moves `begin_bytes` in its memory, before all that depends on nothing
/// else but for receives: ASTRA-sim's clock does not take what ends at the time 0. Throws Error(invalid_input) where
/// the plan is malformed, Error(refused_plan) where it comes to a halt.
[[nodiscard]] ChakraTraces chakra_of(const Plan& plan, int64_t begin_bytes = 1);

}  // namespace tilewire::cli
