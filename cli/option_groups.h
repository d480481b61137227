// Options that several subcommands have: declared once, in options.cpp.
#pragma once

#include <string>

#include "cli/option_set.h"
#include "cli/options.h"

namespace ringworld {

void declare_resources(OptionSet& set, ResourceOptions& resources);
// "  all_reduce      ring, recursive_doubling, ...", one line for each operation.
std::string list_of_operations();

}  // namespace ringworld
