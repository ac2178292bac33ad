package query_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/query"
)

// FuzzStatement checks that no statement changes a file or exceeds the limits, and that each is
// answered with valid lines or one of the expected codes.
func FuzzStatement(f *testing.F) {
	for _, s := range []string{
		"SELECT 1", "SELECT * FROM machines ORDER BY id", "SELECT sealed FROM secret_rows", "ATTACH 'x' AS y", "PRAGMA journal_mode=off",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT * FROM n", "SELECT printf('%.*c', 1e9, 'x')",
		"SELECT key, row_number() OVER (PARTITION BY app ORDER BY key) FROM machine_rows", "VALUES (1), (x'00'), (NULL), (1e999)",
		"SELECT json_group_array(value) FROM machine_rows, json_each(config)", "DELETE FROM machine_rows RETURNING *", "VACUUM INTO 'x'",
		"SELECT x||x FROM (SELECT x||x AS x FROM (SELECT x||x AS x FROM (SELECT site AS x FROM sites)))", "EXPLAIN SELECT 1;", "/*", "'", "\"",
	} {
		f.Add(s)
	}
	file := newFile(f)
	file.machines(f, 50)
	e, err := query.New(query.Config{Source: file, Limits: query.Limits{Time: 200 * time.Millisecond, Rows: 100, Bytes: 1 << 20, Memory: 16 << 20}})
	if err != nil {
		f.Fatal(err)
	}
	before := file.state(f)
	f.Fuzz(func(t *testing.T, statement string) {
		body, err := json.Marshal(query.Request{Statement: statement})
		if err != nil {
			t.Skip("not JSON")
		}
		w := httptest.NewRecorder()
		err = e.Query(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(string(body))))
		switch bourse.CodeOf(err) {
		case "", bourse.CodeInvalid, bourse.CodeTimeout:
		default:
			t.Errorf("%q: %v", statement, err)
		}
		if w.Body.Len() > 1<<20+1000 {
			t.Errorf("%q: %d bytes were sent", statement, w.Body.Len())
		}
		for line := range strings.Lines(w.Body.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%q: the line is not JSON: %s", statement, line)
			}
		}
		if diff := cmp.Diff(before, file.state(t)); diff != "" {
			t.Fatalf("%q changed the file (-before +after):\n%s", statement, diff)
		}
	})
}

// FuzzRequest checks that any body is answered with lines or one of the expected codes.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"statement":"SELECT ?","params":[1]}`, `{"statement":"SELECT :a","params":{"a":{"blob":"AA=="}}}`, `{"statement":"SELECT ?1","params":[9223372036854775808]}`,
		`{}`, `[]`, `{"statement":1}`, `{"statement":"SELECT ?","params":[1e400]}`, `{"statement":"SELECT 1","max_ms":-1}`, `{"statement":"SELECT ?256"}`, "",
	} {
		f.Add([]byte(s))
	}
	file := newFile(f)
	e, err := query.New(query.Config{Source: file, Limits: query.Limits{Time: 200 * time.Millisecond, Rows: 100, Memory: 16 << 20}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		err := e.Query(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(string(body))))
		if code := bourse.CodeOf(err); code != "" && code != bourse.CodeInvalid && code != bourse.CodeTimeout {
			t.Errorf("%q: %v", body, err)
		}
		if err == nil && !strings.HasPrefix(w.Body.String(), `{"columns":[`) {
			t.Errorf("%q: got %s", body, w.Body)
		}
	})
}
