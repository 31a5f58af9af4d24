// Makes the checker's specification of a problem from the table of operators.
// Called by make_op, the command line and tests.
#include "core/text.hpp"
#include "operators/experts.hpp"
#include "tilewire/check.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire {

Specification specification_of(const Problem& problem, int num_ranks) {
  validate(problem, num_ranks);
  const Operator& op = find_operator(problem.op);
  return {.buffers = op.buffers(problem, num_ranks),
          .meanings = op.meanings(problem, num_ranks),
          .epilogue = problem.epilogue,
          .norm = problem.norm,
          .b_layout = problem.b_layout,
          .routes = problem.experts ? routes_of(problem, num_ranks) : std::vector<RouteParams>{},
          .activation = problem.experts ? problem.experts->activation : Activation::none,
          .least_bytes = op.least_bytes(problem, num_ranks)};
}

CheckResult check(const Plan& plan) {
  try {
    validate(plan.team);
    return check(plan, specification_of(note_of(plan).problem, plan.team.num_ranks));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    const bool unsupported = error.kind() == ErrorKind::unsupported;
    return {.violations = {{unsupported ? Rule::unsupported : Rule::structure, error.what()}}};
  }
}

void require_proven(const Plan& plan) {
  const CheckResult result = check(plan);
  if (result.ok()) return;
  std::string reasons;
  for (const Violation& violation : result.violations)
    reasons += fmt::format("\n  {}: {}", to_string(violation.rule), violation.text);
  fail(ErrorKind::refused_plan, "the plan of {} is not proven:{}", plan.op, reasons);
}

}  // namespace tilewire
