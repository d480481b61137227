// How many layouts the planner's search weighs in a second on one core.
//
// The question is the one that a laptop has to answer at once: Llama 3 405B on 16,384 H100, 16M
// tokens in a step. At least 100,000 layouts have to be weighed in less than a second; the counter
// says how many are, all degrees, schedules, shardings, micro-batches, recomputations and
// offloadings.
#include <benchmark/benchmark.h>

#include "planner/search.h"

namespace ringworld {
namespace {

void search(benchmark::State& state, const char* model, std::int64_t gpus) {
  const Machines machines;
  SearchQuestion question;
  question.gpus = gpus;
  question.global_batch = 2048;
  question.sequence_length = 8192;
  std::int64_t weighed = 0;
  for (auto _ : state) {
    const SearchResult result =
        search_layouts(find_transformer(model), machines.find("H100-80GB"), question);
    weighed = result.weighed;
    benchmark::DoNotOptimize(result.best.data());
  }
  state.counters["layouts"] = static_cast<double>(weighed);
  state.counters["layouts/s"] = benchmark::Counter(static_cast<double>(weighed),
                                                   benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK_CAPTURE(search, llama3_405b_on_16384, "llama-3-405b", 16384)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, llama3_70b_on_1024, "llama-3-70b", 1024)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ringworld

BENCHMARK_MAIN();
