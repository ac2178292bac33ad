package query_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse/view/query"
)

// state returns hashes of the files in the view's directory.
func (f *file) state(tb testing.TB) map[string]string {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join(filepath.Dir(f.path), "*"))
	if err != nil {
		tb.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range names {
		if strings.HasSuffix(name, "-shm") {
			continue // this file changes, because it contains the readers' marks
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		all[filepath.Base(name)] = fmt.Sprintf("%x", sha256.Sum256(raw))
	}
	return all
}

type refusal struct{ statement, want string }

// refused returns statements that must be refused, because they do more than read, or because they read secrets. Some
// of them would create the file called other.
func refused(other string) []refusal {
	return []refusal{
		{"INSERT INTO app_rows (key) VALUES ('x')", "only reading is allowed"},
		{"UPDATE app_rows SET org = 'x'", "only reading is allowed"},
		{"DELETE FROM secret_rows", "only reading is allowed"},
		{"DELETE FROM secret_rows RETURNING *", "only reading is allowed"},
		{"REPLACE INTO meta VALUES (1, 'x', 'x', 1, 1, 1)", "only reading is allowed"},
		{"WITH x AS (SELECT 1) DELETE FROM secret_rows", "only reading is allowed"},
		{"CREATE TABLE x (y)", "only reading is allowed"},
		{"CREATE TEMP TABLE x (y)", "only reading is allowed"},
		{"CREATE TEMP VIEW x AS SELECT 1", "only reading is allowed"},
		{"CREATE VIRTUAL TABLE x USING fts5(y)", "only reading is allowed"},
		{"CREATE VIRTUAL TABLE temp.x USING dbstat(main)", "only reading is allowed"},
		{"DROP TABLE machine_rows", "only reading is allowed"},
		{"DROP VIEW machines", "only reading is allowed"},
		{"ALTER TABLE machine_rows ADD COLUMN x", "only reading is allowed"},
		{"REINDEX", "only reading is allowed"},
		{"ANALYZE", "only reading is allowed"},
		{"VACUUM", "the statement has no result: use SELECT"},
		{"VACUUM INTO '" + other + "'", "the statement has no result: use SELECT"},
		{"ATTACH '" + other + "' AS x", "only reading is allowed"},
		{"DETACH main", "only reading is allowed"},
		{"BEGIN", "only reading is allowed"},
		{"BEGIN EXCLUSIVE", "only reading is allowed"},
		{"SAVEPOINT x", "only reading is allowed"},
		{"UPDATE sqlite_schema SET sql = ''", "SQL: table sqlite_master may not be modified"},
		{"INSERT INTO sqlite_schema VALUES ('table', 'x', 'x', 0, 'x')", "only reading is allowed"},
		{"PRAGMA writable_schema = ON", "PRAGMA writable_schema is not allowed"},
		{"PRAGMA query_only = OFF", "PRAGMA query_only is not allowed"},
		{"PRAGMA journal_mode = DELETE", "PRAGMA journal_mode is not allowed"},
		{"PRAGMA database_list", "PRAGMA database_list is not allowed"},
		{"PRAGMA hard_heap_limit = 1", "PRAGMA hard_heap_limit is not allowed"},
		{"PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA wal_checkpoint is not allowed"},
		{"PRAGMA temp_store_directory = '/'", "PRAGMA temp_store_directory is not allowed"},
		{"PRAGMA integrity_check", "PRAGMA integrity_check is not allowed"},
		{"SELECT * FROM pragma_database_list", "table pragma_database_list cannot be read"},
		{"SELECT count(*) FROM pragma_integrity_check", "PRAGMA integrity_check is not allowed"},
		{"SELECT * FROM sqlite_dbpage", "table sqlite_dbpage cannot be read"},
		{"SELECT * FROM dbstat", "table dbstat cannot be read"},
		{"SELECT * FROM sqlite_temp_schema", "only database main can be read, not temp"},
		{"SELECT load_extension('/x.so')", "function load_extension is not allowed"},
		{"SELECT writefile('/x', 'y')", "SQL: 1:8: no such function: writefile"},
		{"SELECT readfile('/etc/passwd')", "SQL: 1:8: no such function: readfile"},
		{"SELECT fts3_tokenizer('x')", "SQL: 1:8: no such function: fts3_tokenizer"},
		{"SELECT sqlite_log(1, 'x')", "function sqlite_log is not allowed"},
		{"SELECT json_patch('{}', '{}')", "function json_patch is not allowed"},
		{"SELECT sealed FROM secret_rows", "secret_rows.sealed cannot be read: select other columns by name"},
		{"SELECT * FROM secret_rows", "secret_rows.sealed cannot be read: select other columns by name"},
		{"SELECT 1 FROM secret_rows WHERE hex(SEALED) > '0'", "secret_rows.sealed cannot be read: select other columns by name"},
		{"SELECT row FROM quarantine", "quarantine.row cannot be read: select other columns by name"},
		{"SELECT 1; SELECT 2", `only one statement is allowed: remove "SELECT 2"`},
		{"SELECT 1; DROP TABLE meta", `only one statement is allowed: remove "DROP TABLE meta"`},
		{"SELECT 1; -- DROP TABLE meta", `only one statement is allowed: remove "-- DROP TABLE meta"`},
		{"-- nothing", "the statement has no result: use SELECT"},
		{"/* nothing", "the statement has no result: use SELECT"},
		{";", "the statement has no result: use SELECT"},
		{"SELECT 1\x00; DROP TABLE meta", "the statement contains a zero byte"},
		{"SELEC 1", `SQL: 1:1: near "SELEC": syntax error`},
		{"SELECT org_id FROM apps", "SQL: 1:8: no such column: org_id"},
		{"SELECT \"x\"", `SQL: 1:8: no such column: "x" - should this be a string literal in single-quotes?`},
	}
}

func TestNothingButReadingIsAllowed(t *testing.T) {
	f := newFile(t)
	s := serve(t, f, query.Config{})
	f.write(t, `INSERT INTO secret_rows (key, site, epoch, seq, at, clock, hash, app, name, sealed) VALUES ('web/A', 's', 1, 1, 1, 1, 1, 'web', 'A', x'01')`)
	before := f.state(t)
	other := filepath.Join(t.TempDir(), "other.db")
	for _, c := range refused(other) {
		got := s.ask(t, sql(c.statement))
		if got.failed.Code != "invalid" || got.failed.Message != c.want {
			t.Errorf("%s:\n got %+v %s\nwant invalid: %s", c.statement, got.failed, got.body, c.want)
		}
	}
	for _, statement := range []string{"SELECT 1 -- comment", "/* a */ SELECT 1;;", "; SELECT 1", "EXPLAIN QUERY PLAN SELECT 1", "EXPLAIN DELETE FROM apps"} {
		if got := s.ask(t, sql(statement)); strings.HasPrefix(statement, "EXPLAIN DEL") != (got.failed.Code != "") {
			t.Errorf("%s: %+v", statement, got.failed)
		}
	}
	if diff := cmp.Diff(before, f.state(t)); diff != "" {
		t.Errorf("files were changed (-before +after):\n%s", diff)
	}
	if _, err := os.Stat(other); err == nil {
		t.Errorf("%s was created", other)
	}
}

// attack is a statement and its expected result.
type attack struct{ name, statement, want string }

// endless returns statements that would run forever or use all memory or disk space. The test
// runs them with limits of 300 ms and 32 MiB.
func endless() []attack {
	nested := "SELECT site AS x FROM sites"
	for range 40 {
		nested = "SELECT x || x AS x FROM (" + nested + ")"
	}
	doubling := "WITH a0(x) AS (SELECT 1)"
	for i := range 30 {
		doubling += fmt.Sprintf(", a%d AS (SELECT l.x FROM a%d l, a%d r)", i+1, i, i)
	}
	const long = "WITH x(a) AS (SELECT printf('%.*c', 2000000, 'a')) "
	const (
		timeout = "timeout: the statement took longer than 300ms"
		memory  = "invalid: the statement needs more than 32 MiB of memory: request fewer rows or columns"
		length  = "invalid: a value or a row is longer than 2359296 bytes"
		either  = timeout + memory // depends on the machine's speed
	)
	return []attack{
		{"a loop", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n", timeout},
		{"a loop with a growing result", "WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i+1 FROM n) SELECT count(*) FROM n", either},
		{"a billion rows, counted", "SELECT count(*) FROM machine_rows a, machine_rows b, machine_rows c", timeout},
		{"a billion rows, sorted", "SELECT a.key FROM machine_rows a, machine_rows b, machine_rows c ORDER BY a.config || b.key, c.key", either},
		{"a billion rows, distinct", "SELECT DISTINCT a.key || b.key || c.key FROM machine_rows a, machine_rows b, machine_rows c", "truncated"},
		{"a billion groups", "SELECT count(*) FROM machine_rows a, machine_rows b GROUP BY a.key || b.key || a.config", either},
		{"a long printf", "SELECT printf('%.*c', 1000000000, 'x')", either + length},
		{"a wide printf", "SELECT printf('%1000000000d', 1)", either + length},
		{"a long blob", "SELECT length(zeroblob(1000000000))", length},
		{"a long random blob", "SELECT length(randomblob(1000000000))", length},
		{"a long group_concat", long + "SELECT length(group_concat(a)) FROM x, machine_rows", either + length},
		{"a long JSON array", "SELECT length(json_group_array(a.config)) FROM machine_rows a, machine_rows b", either + length},
		{"a replacement that grows", long + "SELECT replace(a, 'a', printf('%.*c', 2000000, 'b')) FROM x", length},
		{"a hex of a hex", long + "SELECT hex(hex(a)) FROM x", length},
		{"many long values at once", long + "SELECT length(concat(" + strings.Repeat("a||1,", 90) + "1)) FROM x", memory},
		{"nested subqueries that double", nested, either},
		{"common tables that double", doubling + " SELECT count(*) FROM a30", either},
		{"a search with many near matches", long + "SELECT instr(a, substr(a, 1, 1000000) || 'b') FROM x", "ends"},
		{"a trim with a long set of characters", long + "SELECT length(trim(a, a || 'b')) FROM x", "ends"},
		{"a deep expression", "SELECT " + strings.Repeat("abs(", 200) + "1" + strings.Repeat(")", 200), "invalid: SQL: "},
		{"a long union", "SELECT 1" + strings.Repeat(" UNION SELECT 1", 100), "invalid: SQL: "},
		{"many columns", "SELECT 1" + strings.Repeat(", 1", 200), "invalid: SQL: "},
		{"many tables", "SELECT 1 FROM apps" + strings.Repeat(", apps", 100), "invalid: too many functions"},
		{"many patterns", long + "SELECT " + strings.Repeat("a LIKE '%aaaaaaaaaab%', ", 100) + "1 FROM x", "invalid: too many functions or patterns"},
		{"many functions", "SELECT 1 FROM apps WHERE 0" + strings.Repeat("+((abs(1)+abs(1)+abs(1))", 90) + strings.Repeat(")", 90), "invalid: too many functions"},
	}
}

func TestEndlessStatementsAreStopped(t *testing.T) {
	f := newFile(t)
	const limit = 300 * time.Millisecond
	short := serve(t, f, query.Config{Limits: query.Limits{Time: limit, Memory: 32 << 20}})
	patient := serve(t, f, query.Config{Limits: query.Limits{Time: 100 * limit, Memory: 32 << 20}})
	f.machines(t, 2000)

	for _, c := range endless() {
		t.Run(c.name, func(t *testing.T) {
			s := patient // gives statements that end for another reason enough time on a slow host
			if strings.Contains(c.want, "timeout") {
				s = short
			}
			began := time.Now()
			got := s.ask(t, map[string]any{"statement": c.statement, "max_rows": 1000})
			last := got.lines
			result := "ends"
			switch {
			case got.failed.Code != "":
				result = got.failed.Code + ": " + got.failed.Message
			case last[len(last)-1].End.Truncated:
				result = "truncated"
			}
			if !strings.HasPrefix(result, c.want) && !strings.Contains(c.want, result) {
				t.Errorf("got %s, want %s: %.300s", result, c.want, got.body)
			}
			if took := time.Since(began); took > 50*limit { // far more than necessary, but still limited
				t.Errorf("it took %v", took)
			}
		})
	}
	if got := short.ask(t, sql("SELECT count(*) FROM machines")); got.failed.Code != "" || fmt.Sprint(got.lines[1].Row) != "[2000]" {
		t.Errorf("after the attacks: got %s, want 2000 machines", got.body)
	}
}
