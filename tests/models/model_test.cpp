// What a model is: its parameters, units, sizes and initial values, and which options are refused.
#include "models/model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/error.h"
#include "tests/models/support.h"

namespace ringworld {
namespace {

std::string refusal(const ModelOptions& options) {
  try {
    make_model(options, DType::f32);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

const Parameter& find(const Model& model, const std::string& name) {
  const auto& all = model.parameters();
  const auto found =
      std::ranges::find_if(all, [&](const auto& parameter) { return parameter->name == name; });
  if (found == all.end()) {
    throw std::out_of_range(name);
  }
  return **found;
}

TEST(Presets, HaveThePublishedParameterCounts) {
  const auto count = [](const char* name) {
    return make_model({.name = name}, DType::f32)->parameter_count();
  };
  EXPECT_EQ(count("gpt2"), 124'439'808);
  EXPECT_EQ(count("gpt2-medium"), 354'823'168);
  EXPECT_EQ(count("gpt2-large"), 774'030'080);
  EXPECT_EQ(count("gpt2-xl"), 1'557'611'200);
  EXPECT_EQ(count("tinyllama-1.1b"), 1'100'048'384);
  EXPECT_EQ(count("llama-2-7b"), 6'738'415'616);
  EXPECT_EQ(count("llama-2-13b"), 13'015'864'320);
  EXPECT_EQ(count("llama-2-70b"), 68'976'648'192);
  EXPECT_EQ(count("llama-3-8b"), 8'030'261'248);
  EXPECT_EQ(count("llama-3-70b"), 70'553'706'496);
  EXPECT_EQ(count("llama-3-405b"), 405'853'388'800);
  EXPECT_EQ(count("llama-3.2-1b"), 1'235'814'400);
}

// With keys and values for every head Llama 3 8B would have a tenth more.
TEST(Presets, CountTheHeadsOfKeysAndValues) {
  const auto count = [](std::int64_t kv_heads) {
    return make_model({.name = "llama-3-8b", .kv_heads = kv_heads}, DType::bf16)->parameter_count();
  };
  EXPECT_EQ(count(32), 8'835'567'616);
  EXPECT_EQ(count(0), count(8));
}

TEST(Presets, AreAllBuiltWithoutMemoryAndWithUniqueNames) {
  for (const std::string& name : model_names()) {
    const auto model = make_model({.name = name}, DType::bf16);
    EXPECT_EQ(model->name(), name);
    EXPECT_EQ(model->dtype(), DType::bf16);
    std::set<std::string> names;
    for (const auto& parameter : model->parameters()) {
      names.insert(parameter->name);
      EXPECT_FALSE(parameter->value.defined());
      EXPECT_FALSE(parameter->gradient.defined());
    }
    EXPECT_EQ(names.size(), model->parameters().size()) << name;
  }
}

TEST(Presets, TakeEveryDimensionAsAnOption) {
  const auto gpt2 = make_model({.name = "gpt2-tiny",
                                .layers = 3,
                                .heads = 5,
                                .width = 20,
                                .hidden = 30,
                                .vocabulary = 17,
                                .context = 9},
                               DType::f32);
  EXPECT_EQ(gpt2->units().size(), 3U + 2U);
  EXPECT_EQ(gpt2->vocabulary(), 17);
  EXPECT_EQ(gpt2->context(), 9);
  EXPECT_EQ(find(*gpt2, "wte.weight").shape, (Shape{17, 20}));
  EXPECT_EQ(find(*gpt2, "wpe.weight").shape, (Shape{9, 20}));
  EXPECT_EQ(find(*gpt2, "h.2.attn.c_attn.weight").shape, (Shape{60, 20}));
  EXPECT_EQ(find(*gpt2, "h.2.mlp.c_fc.weight").shape, (Shape{30, 20}));
  EXPECT_EQ(find(*gpt2, "h.2.mlp.c_proj.weight").shape, (Shape{20, 30}));

  const auto llama = make_model({.name = "llama-tiny",
                                 .layers = 3,
                                 .heads = 6,
                                 .width = 24,
                                 .hidden = 20,
                                 .vocabulary = 13,
                                 .context = 9,
                                 .kv_heads = 3,
                                 .tied = true},
                                DType::f32);
  EXPECT_EQ(llama->units().size(), 3U + 2U);
  EXPECT_EQ(llama->context(), 9);
  const std::string layer = "model.layers.2.";
  EXPECT_EQ(find(*llama, layer + "self_attn.qkv_proj.weight").shape, (Shape{(6 + 2 * 3) * 4, 24}));
  EXPECT_EQ(find(*llama, layer + "self_attn.o_proj.weight").shape, (Shape{24, 24}));
  EXPECT_EQ(find(*llama, layer + "mlp.gate_up_proj.weight").shape, (Shape{40, 24}));
  EXPECT_EQ(find(*llama, layer + "mlp.down_proj.weight").shape, (Shape{24, 20}));
  EXPECT_EQ(llama->parameter_count(), 13 * 24 + 3 * (48 * 24 + 24 * 24 + 60 * 24 + 2 * 24) + 24);

  const auto mlp =
      make_model({.name = "mlp", .layers = 1, .width = 6, .vocabulary = 5}, DType::f32);
  EXPECT_EQ(mlp->context(), 0);
  EXPECT_EQ(mlp->parameter_count(), 5 * 6 + (24 * 6 + 24) + (6 * 24 + 6) + (5 * 6 + 5));
}

TEST(Gpt2, TiesTheHeadToTheEmbedding) {
  const auto model = make_model({.name = "gpt2-tiny"}, DType::f32);
  const Parameter* wte = &find(*model, "wte.weight");
  EXPECT_TRUE(std::ranges::count(model->units().front()->parameters(), wte) == 1);
  EXPECT_TRUE(std::ranges::count(model->units().back()->parameters(), wte) == 1);
  // Nothing else is seen twice, and every parameter belongs to a unit.
  std::multiset<const Parameter*> seen;
  for (const auto& unit : model->units()) {
    seen.insert(unit->parameters().begin(), unit->parameters().end());
  }
  for (const auto& parameter : model->parameters()) {
    EXPECT_EQ(seen.count(parameter.get()), parameter.get() == wte ? 2U : 1U) << parameter->name;
  }
}

TEST(Llama, HasAHeadOfItsOwnUnlessTied) {
  for (const bool tied : {false, true}) {
    const auto model = make_model({.name = "llama-tiny", .tied = tied}, DType::f32);
    const Parameter* table = &find(*model, "model.embed_tokens.weight");
    EXPECT_EQ(model->units().front()->parameters(),
              std::vector<Parameter*>{model->parameters().front().get()});
    EXPECT_EQ(std::ranges::count(model->units().back()->parameters(), table), tied ? 1 : 0);
    const auto has_head = std::ranges::any_of(
        model->parameters(), [](const auto& p) { return p->name == "lm_head.weight"; });
    EXPECT_EQ(has_head, !tied);
  }
}

TEST(Llama, DecaysMatricesOnlyAndSplitsAsMegatronDoes) {
  const auto model = make_model({.name = "llama-tiny"}, DType::f32);
  for (const auto& parameter : model->parameters()) {
    EXPECT_EQ(parameter->decay, parameter->shape.axes() == 2) << parameter->name;
    EXPECT_EQ(parameter->normalizes, parameter->shape.axes() == 1) << parameter->name;
  }
  const auto axis = [&](const std::string& name) { return find(*model, name).split_axis; };
  EXPECT_EQ(axis("model.embed_tokens.weight"), 0);
  EXPECT_EQ(axis("model.layers.0.input_layernorm.weight"), -1);
  EXPECT_EQ(axis("model.layers.0.self_attn.qkv_proj.weight"), 0);
  EXPECT_EQ(axis("model.layers.0.self_attn.o_proj.weight"), 1);
  EXPECT_EQ(axis("model.layers.0.mlp.gate_up_proj.weight"), 0);
  EXPECT_EQ(axis("model.layers.0.mlp.down_proj.weight"), 1);
  EXPECT_EQ(axis("lm_head.weight"), 0);
}

// A device has its heads' queries, keys and values, and its part of gate and of up.
TEST(Llama, SplitsFusedWeightsByWhatTheyAreMadeOf) {
  const TensorParallel second(1, 2, /*sequence_parallel=*/false);
  const auto model = make_model({.name = "llama-tiny"}, DType::f32, &second);
  const auto parts = [&](const std::string& name) { return find(*model, name).parts; };
  // 4 heads of 32 queries, 2 of keys and 2 of values; 352 of gate and 352 of up.
  EXPECT_EQ(parts("model.layers.0.self_attn.qkv_proj.weight"),
            (std::vector<Part>{{64, 64}, {128 + 32, 32}, {192 + 32, 32}}));
  EXPECT_EQ(parts("model.layers.0.mlp.gate_up_proj.weight"),
            (std::vector<Part>{{176, 176}, {352 + 176, 176}}));
  EXPECT_EQ(parts("model.layers.0.self_attn.o_proj.weight"), (std::vector<Part>{{64, 64}}));
}

TEST(Gpt2, DecaysMatricesOnlyAndSplitsAsMegatronDoes) {
  const auto model = make_model({.name = "gpt2-tiny"}, DType::f32);
  for (const auto& parameter : model->parameters()) {
    EXPECT_EQ(parameter->decay, parameter->shape.axes() == 2) << parameter->name;
  }
  const auto axis = [&](const std::string& name) { return find(*model, name).split_axis; };
  EXPECT_EQ(axis("wte.weight"), 0);
  EXPECT_EQ(axis("wpe.weight"), -1);
  EXPECT_EQ(axis("h.0.ln_1.weight"), -1);
  EXPECT_EQ(axis("h.0.attn.c_attn.weight"), 0);
  EXPECT_EQ(axis("h.0.attn.c_attn.bias"), 0);
  EXPECT_EQ(axis("h.0.attn.c_proj.weight"), 1);
  EXPECT_EQ(axis("h.0.attn.c_proj.bias"), -1);
  EXPECT_EQ(axis("h.0.mlp.c_fc.weight"), 0);
  EXPECT_EQ(axis("h.0.mlp.c_fc.bias"), 0);
  EXPECT_EQ(axis("h.0.mlp.c_proj.weight"), 1);
  EXPECT_EQ(axis("h.0.mlp.c_proj.bias"), -1);
}

TEST(Flops, AreSixForEachMultipliedParameterAndTwelveTimesWidthTimesSequenceForEachLayer) {
  EXPECT_EQ(make_model({.name = "gpt2"}, DType::f32)->flops_per_token(64),
            6.0 * 124'439'808 + 12.0 * 12 * 768 * 64);
  const auto mlp = make_model({.name = "mlp"}, DType::f32);
  EXPECT_EQ(mlp->flops_per_token(64),
            6.0 * static_cast<double>(mlp->parameter_count() - 256 * 128));
  // Published for 4 sequences of 8192 tokens of Llama 2 7B: 1299.06 TFLOP in its weights and 422.21
  // in attention.
  const auto llama = make_model({.name = "llama-2-7b"}, DType::bf16);
  const double tokens = 4 * 8192;
  const double weights = llama->flops_per_token(0) * tokens;
  EXPECT_NEAR(weights, 1299.06e12, 0.005e12);
  EXPECT_NEAR(llama->flops_per_token(8192) * tokens - weights, 422.21e12, 0.005e12);
}

TEST(InitialValues, AreNormalWithTheScaleOfGpt2) {
  const auto backend = make_test_backend();
  const auto model = make_model({.name = "gpt2-tiny"}, DType::f32);
  bind(*backend, *model, 1);
  // The mean and deviation of n samples are within 5 standard errors of what they are drawn with.
  const auto expect_normal = [&](const std::string& name, double deviation) {
    const Parameter& parameter = find(*model, name);
    const double n = static_cast<double>(parameter.shape.elements());
    EXPECT_NEAR(backend->sum(parameter.value) / n, 0, 5 * deviation / std::sqrt(n)) << name;
    EXPECT_NEAR(std::sqrt(backend->sum_of_squares(parameter.value).value() / n), deviation,
                5 * deviation / std::sqrt(2 * n))
        << name;
  };
  expect_normal("wte.weight", 0.02);
  expect_normal("wpe.weight", 0.02);
  expect_normal("h.1.attn.c_attn.weight", 0.02);
  expect_normal("h.1.mlp.c_fc.weight", 0.02);
  const double projection =
      0.02 / std::sqrt(2.0 * (static_cast<double>(model->units().size()) - 2));
  expect_normal("h.1.attn.c_proj.weight", projection);
  expect_normal("h.1.mlp.c_proj.weight", projection);

  const auto values = [&](const std::string& name) {
    return backend->download_values(find(*model, name).value);
  };
  EXPECT_EQ(values("ln_f.weight"), std::vector<double>(values("ln_f.weight").size(), 1.0));
  EXPECT_EQ(values("ln_f.bias"), std::vector<double>(values("ln_f.bias").size(), 0.0));
  EXPECT_EQ(values("h.0.mlp.c_fc.bias"),
            std::vector<double>(values("h.0.mlp.c_fc.bias").size(), 0.0));
}

TEST(InitialValues, DoNotDependOnHowAParameterIsCut) {
  const auto backend = make_test_backend();
  const auto model = make_model({.name = "gpt2-tiny"}, DType::f32);
  for (const char* name : {"h.1.mlp.c_fc.weight", "ln_f.weight"}) {
    const Parameter& parameter = find(*model, name);
    const std::int64_t elements = parameter.shape.elements();
    const Tensor whole = backend->empty(DType::f32, parameter.shape, Category::parameters);
    initialize(*backend, parameter, whole, 0, 5);
    const std::vector<double> expected = backend->download_values(whole);

    const Tensor pieces = backend->empty(DType::f32, {elements}, Category::parameters);
    const std::int64_t cuts[] = {0, 1, 18, elements / 3, elements};
    for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
      initialize(*backend, parameter, pieces.slice(cuts[i], cuts[i + 1] - cuts[i]), cuts[i], 5);
    }
    EXPECT_EQ(backend->download_values(pieces), expected) << name;
  }
}

TEST(InitialValues, DependOnSeedAndName) {
  const auto backend = make_test_backend();
  const auto model = make_model({.name = "gpt2-tiny"}, DType::f32);
  const auto values = [&](const std::string& name, std::uint64_t seed) {
    const Parameter& parameter = find(*model, name);
    const Tensor value = backend->empty(DType::f32, parameter.shape, Category::parameters);
    initialize(*backend, parameter, value, 0, seed);
    return backend->download_values(value);
  };
  EXPECT_NE(values("h.0.mlp.c_fc.weight", 1), values("h.0.mlp.c_fc.weight", 2));
  EXPECT_NE(values("h.0.mlp.c_fc.weight", 1), values("h.1.mlp.c_fc.weight", 1));
}

TEST(Saved, PoppingMoreThanWasPushedIsABug) {
  Saved saved;
  EXPECT_TRUE(saved.empty());
  saved.push({});
  EXPECT_FALSE(saved.empty());
  saved.pop();
  EXPECT_THROW(saved.pop(), std::logic_error);
}

TEST(Model, RefusesTwoParametersOfOneName) {
  Model model("m", DType::f32, 1, 1);
  model.add_parameter({.name = "weight", .shape = {1}});
  EXPECT_THROW(model.add_parameter({.name = "weight", .shape = {2}}), std::logic_error);
}

TEST(Refused, UnknownModelWithTheNearest) {
  const std::string message = refusal({.name = "gpt-2-medium"});
  EXPECT_NE(message.find("unknown model \"gpt-2-medium\""), std::string::npos) << message;
  EXPECT_NE(message.find("did you mean \"gpt2-medium\"?"), std::string::npos) << message;
  EXPECT_NE(message.find("gpt2-xl"), std::string::npos) << message;
}

TEST(Refused, HeadsThatDoNotDivideTheWidth) {
  EXPECT_EQ(
      refusal({.name = "gpt2-tiny", .heads = 7, .width = 120}),
      "model gpt2-tiny: 7 heads do not divide width 120; the nearest numbers of heads that do: "
      "6 or 8");
  EXPECT_EQ(refusal({.name = "gpt2-tiny", .heads = 130, .width = 120}),
            "model gpt2-tiny: 130 heads do not divide width 120; the nearest numbers of heads that "
            "do: 120");
}

TEST(Refused, KeyValueHeadsThatDoNotDivideTheHeads) {
  EXPECT_EQ(refusal({.name = "llama-tiny", .heads = 8, .kv_heads = 3}),
            "model llama-tiny: 3 kv-heads do not divide 8 heads; the nearest numbers of kv-heads "
            "that do: 2 or 4");
  EXPECT_EQ(refusal({.name = "llama-tiny", .heads = 4, .kv_heads = 8}),
            "model llama-tiny: 8 kv-heads do not divide 4 heads; the nearest numbers of kv-heads "
            "that do: 4");
  const TensorParallel first(0, 4, /*sequence_parallel=*/false);
  try {
    make_model({.name = "llama-tiny"}, DType::f32, &first);
    FAIL() << "not refused";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "model llama-tiny: 2 kv-heads cannot be divided over 4 tensor ranks; use tensor "
                 "ranks that divide them");
  }
}

TEST(Refused, HeadsOfAnOddSizeWherePositionsAreRotary) {
  EXPECT_EQ(refusal({.name = "llama-tiny", .heads = 4, .width = 20}),
            "model llama-tiny: width 20 over 4 heads makes heads of size 5, but rotary positions "
            "turn pairs of elements; use a width that is a multiple of 8");
}

TEST(Refused, WhatLlamaHasNotAndWhatOnlyLlamaHas) {
  EXPECT_EQ(refusal({.name = "llama-tiny", .dropout = 0.1}),
            "model llama-tiny has no dropout, but 0.1 is asked for; leave it out");
  EXPECT_EQ(refusal({.name = "llama-tiny", .rope_theta = -1}),
            "model llama-tiny: rope_theta is -1; it must be above 0");
  EXPECT_EQ(refusal({.name = "gpt2", .kv_heads = 4}), "model gpt2 has no kv-heads; leave it out");
  for (const ModelOptions& options : {ModelOptions{.name = "gpt2", .rope_theta = 1e4},
                                      ModelOptions{.name = "mlp", .tied = true}}) {
    EXPECT_NE(refusal(options).find("no rotary positions, and no choice of a tied head"),
              std::string::npos);
  }
}

TEST(Refused, SequencesLongerThanTheContext) {
  const auto gpt2 = make_model({.name = "gpt2-tiny", .context = 16}, DType::f32);
  EXPECT_NO_THROW(gpt2->check_sequence_length(16));
  EXPECT_THROW(gpt2->check_sequence_length(17), UsageError);
  EXPECT_NO_THROW(make_model({.name = "mlp"}, DType::f32)->check_sequence_length(1'000'000));
}

TEST(Refused, SizesThatAreNegativeOrTooLarge) {
  EXPECT_EQ(refusal({.name = "gpt2", .width = -8}),
            "model gpt2: width is -8; it must be from 1 to 536870911");
  EXPECT_EQ(refusal({.name = "mlp", .hidden = -1}),
            "model mlp: hidden is -1; it must be from 1 to 2147483647");
  EXPECT_EQ(refusal({.name = "gpt2", .layers = 1'000'000}),
            "model gpt2: layers is 1000000; it must be from 1 to 1000");
  for (const auto size : {&ModelOptions::layers, &ModelOptions::heads, &ModelOptions::vocabulary,
                          &ModelOptions::context}) {
    ModelOptions options{.name = "gpt2"};
    options.*size = -1;
    EXPECT_NE(refusal(options).find("is -1; it must be from 1"), std::string::npos);
  }
}

TEST(Refused, DimensionsThatTheModelDoesNotHave) {
  EXPECT_EQ(refusal({.name = "mlp", .heads = 4}), "model mlp has no heads; leave it out");
  EXPECT_EQ(refusal({.name = "mlp", .context = 4}), "model mlp has no context; leave it out");
}

}  // namespace
}  // namespace ringworld
