package inventory

import (
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse/view/schema"
)

// plan returns SQLite's query plan for a statement.
func plan(t *testing.T, c *sqlite.Conn, sql string) string {
	t.Helper()
	var lines []string
	err := schema.Query(c, "EXPLAIN QUERY PLAN "+sql, func(s *sqlite.Stmt) error {
		lines = append(lines, s.ColumnText(3))
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(lines, "\n")
}

func TestReadersUseIndexes(t *testing.T) {
	c := SchemaConn(t)
	of := func(f Filter) string { sql, _ := machinesSQL(f); return sql }
	volumesOf := func(f VolumeFilter) string { sql, _ := volumesSQL(f); return sql }
	imagesOf := func(f ImageFilter) string { sql, _ := imagesSQL(f); return sql }
	const byHost = "SEARCH s USING PRIMARY KEY (site=?) LEFT-JOIN"
	for name, tt := range map[string]struct {
		sql  string
		want []string
	}{
		"a machine":                  {of(Filter{ID: "1"}), []string{"SEARCH r USING INDEX machine_rows_by_key (key=?)", byHost}},
		"a machine of an app":        {of(Filter{ID: "1", App: "a", Worker: "w"}), []string{"SEARCH r USING INDEX machine_rows_by_key (key=?)", byHost}},
		"machines of an app":         {of(Filter{App: "a"}), []string{"SEARCH r USING INDEX machine_rows_by_app (app=?)", byHost}},
		"and of a region":            {of(Filter{App: "a", Region: "r"}), []string{"SEARCH r USING INDEX machine_rows_by_app (app=? AND region=?)", byHost}},
		"and of a worker":            {of(Filter{App: "a", Worker: "w"}), []string{"SEARCH r USING INDEX machine_rows_by_app (app=?)", byHost}},
		"machines of a worker":       {of(Filter{Worker: "w"}), []string{"SEARCH r USING INDEX sqlite_autoindex_machine_rows_1 (site=?)", byHost}},
		"all machines":               {of(Filter{}), []string{"SCAN r", byHost}},
		"a volume":                   {volumesOf(VolumeFilter{ID: "v", App: "a"}), []string{"SEARCH r USING INDEX volume_rows_by_key (key=?)", byHost}},
		"volumes of an app":          {volumesOf(VolumeFilter{App: "a", Worker: "w"}), []string{"SEARCH r USING INDEX volume_rows_by_app (app=?)", byHost}},
		"volumes of a worker":        {volumesOf(VolumeFilter{Worker: "w"}), []string{"SEARCH r USING PRIMARY KEY (site=?)", byHost}},
		"all volumes":                {volumesOf(VolumeFilter{}), []string{"SCAN r", byHost}},
		"workers with an image":      {imagesOf(ImageFilter{Digest: "d"}), []string{"SEARCH r USING INDEX image_rows_by_key (key=?)", byHost}},
		"images of a worker":         {imagesOf(ImageFilter{Worker: "w"}), []string{"SEARCH r USING PRIMARY KEY (site=?)", byHost}},
		"counts":                     {countMachinesSQL, []string{"SCAN machine_rows USING COVERING INDEX machine_rows_by_app"}},
		"workers":                    {workersSQL, []string{"SCAN r", byHost}},
		"a worker's tag":             {tagSQL, []string{"SEARCH worker_rows USING PRIMARY KEY (site=?"}},
		"apps":                       {appsSQL, []string{"SCAN app_rows"}},
		"an app":                     {appSQL, []string{"SEARCH app_rows USING PRIMARY KEY (key=?)"}},
		"canceled":                   {canceledSQL, []string{"SEARCH canceled_rows USING INDEX canceled_rows_by_worker (worker=?)"}},
		"SQL: machines of an app":    {"SELECT * FROM machines WHERE app = ?", []string{"SEARCH r USING INDEX machine_rows_by_app (app=?)", byHost}},
		"SQL: a machine":             {"SELECT id, state FROM machines WHERE id = ?", []string{"SEARCH r USING INDEX machine_rows_by_key (key=?)"}},
		"SQL: machines of a worker":  {"SELECT id FROM machines WHERE worker = ?", []string{"SEARCH r USING INDEX sqlite_autoindex_machine_rows_1 (site=?)"}},
		"SQL: services of an app":    {"SELECT * FROM services WHERE app = ?", []string{"SEARCH r USING INDEX service_rows_by_app (app=?)", "SEARCH m USING INDEX sqlite_autoindex_machine_rows_1 (site=? AND key=?)", byHost}},
		"SQL: events of a machine":   {"SELECT * FROM events WHERE machine = ?", []string{"SEARCH m USING INDEX machine_rows_by_key (key=?)"}},
		"SQL: events of an app":      {"SELECT * FROM events WHERE app = ?", []string{"SEARCH m USING INDEX machine_rows_by_app (app=?)"}},
		"SQL: an app":                {"SELECT * FROM apps WHERE name = ?", []string{"SEARCH r USING PRIMARY KEY (key=?)", "SEARCH m USING COVERING INDEX machine_rows_by_app (app=?)"}},
		"SQL: a worker":              {"SELECT * FROM workers WHERE id = ?", []string{"SEARCH r USING PRIMARY KEY (site=?)", "SEARCH m USING "}},
		"SQL: a worker's capacity":   {"SELECT * FROM capacity WHERE worker = ?", []string{"SEARCH w USING PRIMARY KEY (site=?)"}},
		"SQL: a volume":              {"SELECT * FROM volumes WHERE id = ?", []string{"SEARCH r USING INDEX volume_rows_by_key (key=?)"}},
		"SQL: checks of a machine":   {"SELECT * FROM checks WHERE machine = ?", []string{"SEARCH m USING INDEX machine_rows_by_key (key=?)"}},
		"SQL: workers with an image": {"SELECT * FROM images WHERE digest = ?", []string{"SEARCH r USING INDEX image_rows_by_key (key=?)"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := plan(t, c, tt.sql)
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in the plan of %s:\n%s", want, tt.sql, got)
				}
			}
			if !strings.HasPrefix(tt.want[0], "SCAN") && (strings.Contains(got, "SCAN r") || strings.Contains(got, "SCAN m")) {
				t.Errorf("all rows are scanned:\n%s", got)
			}
		})
	}
}
