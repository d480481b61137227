// Options that several subcommands have: declared once, in options.cpp.
#pragma once

#include <string>

#include "cli/option_set.h"
#include "cli/options.h"

namespace ringworld {

void declare_resources(OptionSet& set, ResourceOptions& resources);
// "  all_reduce      ring, recursive_doubling, ...", one line for each operation.
std::string list_of_operations();
// Throws UsageError where a root or a reduction is given that the operation does not have.
void refuse_what_has_no_effect(Operation operation, int root, ReduceOp op = ReduceOp::sum);

}  // namespace ringworld
