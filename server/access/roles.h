// Who may call what: the one table of methods and roles (docs/security.md shows it, and a test compares the two).
// A method that is not in the table is refused to everybody. Must not know gRPC or tokens.
// Thread rule: free functions over constant data.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ablate {

enum class Role { kRead, kSubmit, kWorker, kAdmin };

std::string_view RoleName(Role role);  // "read", "submit", "worker", "admin"
std::optional<Role> ParseRole(std::string_view name);
const std::vector<std::string>& RoleNames();

// Roles of one method as a set. kPublic: no token is asked for.
struct MethodRule {
  std::string_view method;  // "ablate.v1.Sweeps/GetSweep"
  unsigned roles;           // bit 1 << Role
  bool is_public = false;

  bool Allows(Role role) const { return is_public || (roles & (1u << static_cast<unsigned>(role))) != 0; }
  // "submit or admin".
  std::string RolesText() const;
};

const std::vector<MethodRule>& MethodRules();
// Null: no such method. `path` as HTTP/2 has it, "/ablate.v1.Sweeps/GetSweep".
const MethodRule* FindMethodRule(std::string_view path);

}  // namespace ablate
