# cmake -DFILES="a.sql|b.sql" -DOUTPUT=x.cc -P embed_migrations.cmake: the migrations as one C++ table.
string(REPLACE "|" ";" FILES "${FILES}")
set(rows "")
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" sql)
  string(APPEND rows "      {\"${name}\", R\"sql(${sql})sql\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Generated from server/store/migrations; do not edit.
#include \"server/store/migrations.h\"

namespace ablate {

const std::vector<Migration>& Migrations() {
  static const auto& migrations = *new std::vector<Migration>{
${rows}  };
  return migrations;
}

}  // namespace ablate
")
