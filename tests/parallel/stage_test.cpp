// How a chain of units is divided into pipeline stages, and that nothing is lost in the division.
#include "parallel/stage.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

// Layers that all cost the same: a head of so few classes weighs nothing beside them.
std::unique_ptr<Model> light_head(std::int64_t layers) {
  return make_model({.layers = layers, .heads = 2, .width = 64, .vocabulary = 2, .context = 8},
                    DType::f32);
}

std::unique_ptr<Model> heavy_head(const std::string& name, std::int64_t layers,
                                  std::int64_t vocabulary) {
  return make_model(
      {.name = name, .layers = layers, .heads = 2, .width = 8, .vocabulary = vocabulary},
      DType::f32);
}

// Of a division, the layers of each part: the first unit and the last one are none.
std::vector<std::int64_t> layers_of(std::vector<Part> parts) {
  std::vector<std::int64_t> layers;
  for (const Part& part : parts) {
    layers.push_back(part.count);
  }
  layers.front() -= 1;
  layers.back() -= 1;
  return layers;
}

// That the parts follow each other from the first unit to the last.
void expect_whole(const std::vector<Part>& parts, const Model& model) {
  std::int64_t next = 0;
  for (const Part& part : parts) {
    EXPECT_EQ(part.first, next);
    next += part.count;
  }
  EXPECT_EQ(next, static_cast<std::int64_t>(model.units().size()));
}

TEST(DivideChain, LayersThatDoNotDivideAreAllThere) {
  const auto division = [](std::int64_t layers, int stages) {
    const auto model = light_head(layers);
    const std::vector<Part> parts = divide_chain(*model, stages);
    expect_whole(parts, *model);
    std::vector<std::int64_t> counts = layers_of(parts);
    std::ranges::sort(counts, std::greater());
    return counts;
  };
  using Counts = std::vector<std::int64_t>;
  EXPECT_EQ(division(30, 4), (Counts{8, 8, 7, 7}));
  EXPECT_EQ(division(43, 4), (Counts{11, 11, 11, 10}));
  EXPECT_EQ(division(40, 16), (Counts{3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(division(4, 4), (Counts{1, 1, 1, 1}));
  EXPECT_EQ(division(5, 1), (Counts{5}));
}

// By trying every division: the dearest part costs as little as can be.
TEST(DivideChain, TheDearestPartIsAsCheapAsCanBe) {
  for (const auto& [vocabulary, layers] : {std::pair(2, 7), {100, 7}, {300, 7}, {5000, 5}}) {
    const auto model = heavy_head("gpt2-tiny", layers, vocabulary);
    // Multiplications of a token: a layer's matrices have 12 C^2 elements, the head V C.
    const auto cost = [&](std::int64_t count, bool last) {
      return count * 12 * 64 + (last ? vocabulary * 8 : 0);
    };
    for (const int stages : {2, 3}) {
      const auto dearest = [&](const std::vector<std::int64_t>& counts) {
        std::int64_t most = 0;
        for (std::size_t i = 0; i < counts.size(); ++i) {
          most = std::max<std::int64_t>(most, cost(counts[i], i + 1 == counts.size()));
        }
        return most;
      };
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      for (std::int64_t a = 1; a < layers; ++a) {
        for (std::int64_t b = stages == 2 ? 0 : 1; a + b < layers; ++b) {
          least = std::min(
              least, stages == 2 ? dearest({a, layers - a}) : dearest({a, b, layers - a - b}));
        }
      }
      EXPECT_EQ(dearest(layers_of(divide_chain(*model, stages))), least)
          << layers << " layers, " << vocabulary << " classes, " << stages << " stages";
    }
  }
}

TEST(DivideChain, AHeavyHeadLeavesItsStageFewerLayers) {
  const std::vector<std::int64_t> counts =
      layers_of(divide_chain(*heavy_head("gpt2-tiny", 8, 2 * 12 * 8), 2));  // as two layers
  EXPECT_EQ(counts, (std::vector<std::int64_t>{5, 3}));
}

TEST(DivideChain, AsManyLayersAsAreAskedFor) {
  const auto model = light_head(8);
  const std::vector<Part> parts = divide_chain(*model, 4, {1, 2, 2, 3});
  expect_whole(parts, *model);
  EXPECT_EQ(layers_of(parts), (std::vector<std::int64_t>{1, 2, 2, 3}));
}

TEST(DivideChain, WhatDoesNotFitIsRefusedWithAllNumbers) {
  const auto model = light_head(3);
  const auto refuse = [&](int parts, const std::vector<std::int64_t>& layers,
                          std::initializer_list<std::string_view> facts) {
    expect_error<UsageError>([&] { divide_chain(*model, parts, layers); }, facts);
  };
  refuse(4, {}, {"gpt2-tiny has 3 layers", "4 pipeline stages", "at most 3"});
  refuse(2, {1, 1}, {"--stages 1,1", "2 numbers", "sum 2", "3 layers", "2 stages"});
  refuse(2, {1, 3}, {"--stages 1,3", "sum 4", "3 layers"});
  refuse(2, {1, 1, 1}, {"--stages 1,1,1", "3 numbers", "2 stages"});
  refuse(3, {2, 1}, {"--stages 2,1", "2 numbers", "3 stages"});
  refuse(2, {3, 0}, {"--stages 3,0", "one at least"});
  refuse(1, {2}, {"--stages 2", "sum 2", "3 layers"});
}

TEST(DivideChain, EverySchedulesUsualChunks) {
  EXPECT_EQ(chunks_of({.schedule = "1f1b"}), 1);
  EXPECT_EQ(chunks_of({.schedule = "interleaved-1f1b"}), 2);
  EXPECT_EQ(chunks_of({.schedule = "interleaved-1f1b", .chunks = 3}), 3);
  expect_error<UsageError>([] { chunks_of({.schedule = "1f2b"}); }, {"1f2b", "1f1b"});
}

// Each stage's parameters together are the model's, a tied weight's copy aside; each is counted
// once.
TEST(Stage, ParametersOfAllStagesAreTheModels) {
  struct Case {
    std::string model;
    bool tied;
  };
  for (const Case& c : {Case{"gpt2-tiny", true}, Case{"llama-tiny", false},
                        Case{"llama-tiny", true}, Case{"mlp", false}}) {
    for (int stages = 2; stages <= 4; ++stages) {
      for (const std::string schedule : {"1f1b", "interleaved-1f1b"}) {
        SCOPED_TRACE(c.model + (c.tied ? " tied" : "") + ", " + schedule + ", stages " +
                     std::to_string(stages));
        ModelOptions options{.name = c.model, .layers = 9, .width = 8, .vocabulary = 23};
        if (c.model == "llama-tiny") {
          options.tied = c.tied;
        }
        if (c.model != "mlp") {
          options.heads = 2;
        }
        const auto whole = make_model(options, DType::f32);
        std::vector<std::int64_t> total(static_cast<std::size_t>(stages));
        std::vector<std::map<std::string, bool>> counted(static_cast<std::size_t>(stages));
        run_on_threads(stages, [&](Transport& transport) {
          const auto backend = make_cpu_backend(Device::create({}), 1);
          Communicator pipeline(transport, *backend);
          const auto model = make_model(options, DType::f32);
          const Stage stage(pipeline, {.schedule = schedule}, *model);
          EXPECT_EQ(stage.chunks().front().is_first, pipeline.rank() == 0);
          EXPECT_EQ(stage.chunks().back().is_last, pipeline.rank() + 1 == stages);
          model->keep(stage.kept());
          const auto rank = static_cast<std::size_t>(pipeline.rank());
          total[rank] = model->parameter_count();
          for (const auto& p : model->parameters()) {
            counted[rank][p->name] = p->counted;
            EXPECT_EQ(p->gradient_sum == GradientSum::end_stages,
                      c.tied && p->name == whole->parameters()[0]->name)
                << p->name << " on stage " << rank;
          }
        });
        const std::int64_t copy = c.tied ? 23 * 8 : 0;
        EXPECT_EQ(std::accumulate(total.begin(), total.end(), std::int64_t{0}),
                  whole->parameter_count() + copy);
        for (const auto& p : whole->parameters()) {
          int count = 0;
          for (const auto& stage : counted) {
            const auto found = stage.find(p->name);
            count += found != stage.end() && found->second ? 1 : 0;
          }
          EXPECT_EQ(count, 1) << p->name << " is counted " << count << " times";
        }
      }
    }
  }
}

}  // namespace
}  // namespace ringworld
