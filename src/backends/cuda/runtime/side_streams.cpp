// Streams in addition to the callers', made when a call first needs them.
// Called when calls are enqueued.
#include "backends/cuda/runtime/side_streams.hpp"

#include <algorithm>

#include "backends/cuda/runtime/call_order.hpp"

namespace tilewire::cuda {
namespace {

/// Whether the streams of a set are still in a capture.
bool is_captured(const std::vector<std::unique_ptr<SideStream>>& streams) {
  return !streams.empty() && capture_of(streams[0]->stream.get()) != 0;
}

}  // namespace

/// NOTE: a stream in a capture stays in it until the capture ends. So eager calls and each capture have streams of
/// their own.
SideStreams::Set& SideStreams::set_of(uint64_t capture) {
  const auto fits = [&](const std::unique_ptr<Set>& set) {
    if (set->capture == capture) return true;
    return capture != 0 && set->capture != 0 && !is_captured(set->urgent) && !is_captured(set->patient);
  };
  auto found = std::ranges::find_if(sets_, fits);
  if (found == sets_.end()) {
    sets_.push_back(std::make_unique<Set>());
    found = std::prev(sets_.end());
    (*found)->fork = new_event();
  }
  (*found)->capture = capture;
  return **found;
}

CallStreams SideStreams::of_call(uint64_t capture, const std::vector<StreamUse>& uses) {
  Set& set = set_of(capture);
  CallStreams streams{.fork = &set.fork};
  size_t urgent = 0;
  size_t patient = 0;
  for (const StreamUse& use : uses) {
    auto& some = use.urgent ? set.urgent : set.patient;
    const size_t index = use.urgent ? urgent++ : patient++;
    if (index == some.size()) {
      auto side = std::make_unique<SideStream>();
      side->stream = use.urgent ? new_urgent_stream() : new_patient_stream();
      side->end = new_event();
      some.push_back(std::move(side));
    }
    SideStream& side = *some[index];
    streams.all.push_back(&side);
    if (capture != 0 || !use.has_notifier || side.notifier != nullptr) continue;
    side.copied = new_event();
    side.notifier = new_urgent_stream();
  }
  return streams;
}

}  // namespace tilewire::cuda
