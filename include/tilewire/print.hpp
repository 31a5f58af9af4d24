// Names of enumerators, and a one-line text for every plain struct.
// Used by messages, tables and tests.
#pragma once

#include <ostream>
#include <string>

#include "tilewire/check.hpp"
#include "tilewire/error.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/sim/sim.hpp"
#include "tilewire/trace.hpp"

namespace tilewire {

// clang-format off
#define TILEWIRE_FOR_EACH_ENUM(X) \
  X(ErrorKind) X(DType) X(Reach) X(BLayout) X(Reduction) X(EpilogueKind) X(Activation) X(NormKind) X(Direction) \
  X(Transport) X(Algorithm) X(ReduceMode) X(ReduceWhen) X(TileOrder) X(Release) X(Pacing) X(Dispatch) X(Provider) X(Tuning) \
  X(Scope) X(Purpose) X(WriteMode) X(Via) X(CacheHint) X(TaskKind) X(Body) X(Collective) X(Engine) X(Role) X(Rule) \
  X(Topology) X(Forwarding) X(CollectiveAlgorithm) X(Arbitration) X(NearMemory)
#define TILEWIRE_FOR_EACH_STRUCT(X) \
  X(Device) X(Link) X(Team) X(Epilogue) X(Norm) X(Experts) X(ExpertGroup) X(RouteParams) X(Range) X(Problem) X(Config) X(Shape) X(Buffer) X(Region) \
  X(Signal) X(SignalBlock) X(Wait) X(Post) X(Write) X(EpilogueStep) X(GemmParams) X(PlanNote) X(Task) X(Lane) X(Plan) \
  X(TraceEvent) X(Trace) X(Meaning) X(Violation) X(LinkTraffic) \
  X(ComputeUnits) X(DeviceMemory) X(MemoryController) X(Tracker) X(CopyEngines) X(Links) X(Overheads) \
  X(Machine)
// clang-format on

/// Name of the enumerator in JSON and on the command line.
#define TILEWIRE_DECLARE(T) [[nodiscard]] std::string to_string(T value);
TILEWIRE_FOR_EACH_ENUM(TILEWIRE_DECLARE)
#undef TILEWIRE_DECLARE

/// The struct's JSON in one line, without fields that have their default.
#define TILEWIRE_DECLARE(T) [[nodiscard]] std::string to_string(const T& value);
TILEWIRE_FOR_EACH_STRUCT(TILEWIRE_DECLARE)
#undef TILEWIRE_DECLARE

/// Print any value that has a to_string.
template <class T>
requires requires(const T& value) { tilewire::to_string(value); }
std::ostream& operator<<(std::ostream& out, const T& value) { return out << to_string(value); }

/// The enumerator of that name. Throws Error(invalid_input) with `what` ("--dtype") and the known names.
template <class E>
[[nodiscard]] E parse(const std::string& name, const std::string& what);

/// Names of all enumerators, separated by commas: "ring, direct".
template <class E>
[[nodiscard]] std::string known_names();

}  // namespace tilewire
