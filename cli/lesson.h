// The parts of a course's lesson on distributed training, each worked out by the planner or run on
// ranks: what ringworld lesson prints.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/lesson_ranks.h"
#include "planner/layout.h"

namespace ringworld {

struct LessonPart {
  std::string asked;                    // what is worked out, from what, by whom
  std::string table;                    // at most 100 columns wide
  std::vector<std::string> found = {};  // what the table does not say, a paragraph each
  std::string practice;                 // what a real system does differently, in one line
  nlohmann::ordered_json json = {};
};

struct LessonEntry {
  std::string name;  // "data-parallel"
  std::string title;
  bool on_ranks;  // every rank runs it, and rank 0 has the result; otherwise rank 0 alone runs it
  LessonPart (*run)(LessonRanks& ranks);
};

// Llama 3 405B on 16,384 GPUs: Grattafiori et al., The Llama 3 Herd of Models, 2024, table 4.
Layout lesson_llama3_layout();

// In the lesson's order, the exercises last.
std::span<const LessonEntry> lesson_parts();

LessonPart lesson_data_parallel(LessonRanks& ranks);    // lesson_data_parallel.cpp
LessonPart lesson_accumulation(LessonRanks& ranks);     // lesson_data_parallel.cpp
LessonPart lesson_tensor_parallel(LessonRanks& ranks);  // lesson_tensor_parallel.cpp
LessonPart lesson_pipeline(LessonRanks& ranks);         // lesson_pipeline.cpp
LessonPart lesson_one_f_one_b(LessonRanks& ranks);      // lesson_pipeline.cpp
LessonPart lesson_memory_tables(LessonRanks& ranks);    // lesson_memory.cpp
LessonPart lesson_mixed_precision(LessonRanks& ranks);  // lesson_memory.cpp
LessonPart lesson_three_axes(LessonRanks& ranks);       // lesson_memory.cpp
LessonPart lesson_ring(LessonRanks& ranks);             // lesson_ring.cpp
LessonPart lesson_checkpointing(LessonRanks& ranks);    // lesson_checkpointing.cpp
LessonPart lesson_cost(LessonRanks& ranks);             // lesson_cost.cpp
LessonPart lesson_offload(LessonRanks& ranks);          // lesson_offload.cpp

}  // namespace ringworld
