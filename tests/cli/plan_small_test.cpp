// Every layout that a search can find has a small one that runs.
#include "cli/plan_small.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/dry_run.h"
#include "cli/plan_verify.h"
#include "parallel/pipeline_schedule.h"

namespace ringworld {
namespace {

void expect_runs(const char* model, const Layout& layout) {
  const SmallTraining small = in_small(find_transformer(model), layout);
  const std::string what = fmt::format("{}: {}, {}", model, describe(layout), layout.schedule);
  const std::int64_t ranks = small.layout.gpus();
  EXPECT_LE(ranks, 8) << what;
  EXPECT_EQ(small.layout.data > 1, layout.data > 1) << what;
  EXPECT_EQ(small.layout.tensor > 1, layout.tensor > 1) << what;
  EXPECT_EQ(small.layout.pipeline > 1, layout.pipeline > 1) << what;
  EXPECT_EQ(small.layout.sharding, layout.sharding) << what;
  EXPECT_NO_THROW(dry_run(training_of(small.model, small.layout, {}), 0, static_cast<int>(ranks)))
      << what;
}

TEST(PlanSmall, EveryLayoutRuns) {
  for (const char* model : {"gpt3-175b", "llama-3-70b"}) {
    for (const std::int64_t data : {1, 12}) {
      for (const std::int64_t tensor : {1, 8}) {
        for (const Sharding sharding : all_shardings) {
          for (const std::string& schedule : pipeline_names()) {
            for (const std::int64_t pipeline : {1, 6}) {
              Layout layout{.data = data,
                            .tensor = tensor,
                            .pipeline = pipeline,
                            .sequence_parallel = tensor > 1,
                            .schedule = schedule,
                            .sharding = sharding,
                            .micro_batch = 16,
                            .global_batch = 16 * 30 * data,
                            .sequence_length = 8192};
              const int chunks = find_pipeline(schedule).usual_chunks;
              layout.chunks = pipeline == 1 || chunks == 1 ? 1 : 5;
              layout.offload =
                  sharding == Sharding::zero3 ? PlannedOffload::parameters : PlannedOffload::none;
              expect_runs(model, layout);
            }
          }
        }
      }
    }
  }
}

TEST(PlanSmall, SaysWhatIsLeftOut) {
  Layout layout{.data = 8, .sequence_length = 8192};
  const Transformer& model = find_transformer("mixtral-8x7b");
  EXPECT_EQ(in_small(model, layout).left_out, "");
  layout.context = 2;
  layout.expert = 4;
  EXPECT_EQ(in_small(model, layout).left_out,
            "context parallelism left out; expert parallelism left out");
  layout.context = layout.expert = 1;
  layout.pipeline = 4;
  layout.schedule = "zb-h2";
  layout.global_batch = 64;
  EXPECT_EQ(in_small(model, layout).left_out, "");
  layout.sharding = Sharding::zero3;
  const SmallTraining small = in_small(model, layout);
  EXPECT_EQ(small.left_out, "1f1b for zb-h2, whose weights' gradients come too late for zero3");
  EXPECT_EQ(small.layout.schedule, "1f1b");
}

}  // namespace
}  // namespace ringworld
