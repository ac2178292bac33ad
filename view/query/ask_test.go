package query_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse/view/query"
)

func itoa(n int) string { return strconv.Itoa(n) }

// sql returns the body of a query.
func sql(statement string, params ...any) map[string]any {
	return map[string]any{"statement": statement, "params": params}
}

func TestQueryStreamsLines(t *testing.T) {
	f := newFile(t)
	s := serve(t, f, query.Config{Now: func() time.Time { return time.Time{} }})
	f.write(t, `INSERT INTO app_rows (key, site, epoch, seq, at, clock, hash, id, org) VALUES
		('web', 's', 1, 1, 1, 1, 1, 'app_1', 'acme'), ('api', 's', 1, 2, 1, 1, 1, 'app_2', 'a "quoted" <org>')`)
	cases := []struct {
		name string
		body map[string]any
		want string
	}{
		{"rows", sql("SELECT name, org FROM apps ORDER BY name"), `
			{"columns":["name","org"]}
			{"row":["api","a \"quoted\" <org>"]}
			{"row":["web","acme"]}
			{"end":{"rows":2,"ms":0,"truncated":false}}`},
		{"no rows", sql("SELECT name FROM apps WHERE name = 'none'"), `
			{"columns":["name"]}
			{"end":{"rows":0,"ms":0,"truncated":false}}`},
		{"every type", sql("SELECT NULL AS a, 9223372036854775807 AS b, 1.0 AS c, 1e300 AS d, 'é' || char(10) AS e, x'00ff' AS f, -1e999 AS g"), `
			{"columns":["a","b","c","d","e","f","g"]}
			{"row":[null,9223372036854775807,1.0,1e+300,"é\n",{"blob":"AP8="},"-Inf"]}
			{"end":{"rows":1,"ms":0,"truncated":false}}`},
		{"parameters", sql("SELECT ?, ?, ?, ?, ?, typeof(?4)", 9007199254740993, "x", nil, 2.5, true), `
			{"columns":["?","?","?","?","?","typeof(?4)"]}
			{"row":[9007199254740993,"x",null,2.5,1,"real"]}
			{"end":{"rows":1,"ms":0,"truncated":false}}`},
		{"named parameters", map[string]any{"statement": "SELECT :a, @b, $c, :a", "params": map[string]any{"a": 1, "b": map[string]any{"blob": "AP8="}, "c": false}}, `
			{"columns":[":a","@b","$c",":a"]}
			{"row":[1,{"blob":"AP8="},0,1]}
			{"end":{"rows":1,"ms":0,"truncated":false}}`},
		{"fewer rows", map[string]any{"statement": "SELECT name FROM apps ORDER BY 1", "max_rows": 1}, `
			{"columns":["name"]}
			{"row":["api"]}
			{"end":{"rows":1,"ms":0,"truncated":true}}`},
		{"exactly the rows", map[string]any{"statement": "SELECT name FROM apps ORDER BY 1;", "max_rows": 2}, `
			{"columns":["name"]}
			{"row":["api"]}
			{"row":["web"]}
			{"end":{"rows":2,"ms":0,"truncated":false}}`},
		{"an error midway", sql("WITH n(i) AS (VALUES (1), (2)) SELECT CASE i WHEN 1 THEN 'ok' ELSE printf('%.*c', 1000000000, 'x') END AS v FROM n"), `
			{"columns":["v"]}
			{"row":["ok"]}
			{"error":{"code":"invalid","message":"a value or a row is longer than 2359296 bytes"}}`},
		{"the shape of a table", sql("SELECT name FROM pragma_table_info('apps') LIMIT 2"), `
			{"columns":["name"]}
			{"row":["name"]}
			{"row":["id"]}
			{"end":{"rows":2,"ms":0,"truncated":false}}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := s.ask(t, c.body)
			want := strings.ReplaceAll(strings.TrimPrefix(c.want, "\n"), "\t", "") + "\n"
			if diff := cmp.Diff(want, got.body); diff != "" {
				t.Errorf("the lines differ (-want +got):\n%s", diff)
			}
			if ct := got.header.Get("Content-Type"); got.status != http.StatusOK || ct != query.TypeLines {
				t.Errorf("got status %d and type %q, want 200 and %q", got.status, ct, query.TypeLines)
			}
		})
	}
}

func TestQueryReadsEverySQLView(t *testing.T) {
	f := newFile(t)
	s := serve(t, f, query.Config{})
	f.machines(t, 10)
	for _, v := range []string{"workers", "machines", "services", "volumes", "images", "checks", "apps", "secrets", "releases", "canceled_orders"} {
		for _, statement := range []string{"SELECT * FROM " + v, "SELECT count(*) FROM " + v} {
			if got := s.ask(t, sql(statement)); got.failed.Code != "" {
				t.Errorf("%s: %+v", statement, got.failed)
			}
		}
	}
}

func TestQueryTruncatesLargeResults(t *testing.T) {
	f := newFile(t)
	s := serve(t, f, query.Config{Limits: query.Limits{Rows: 5000, Bytes: 100_000}})
	f.machines(t, 6000)
	for _, c := range []struct {
		statement string
		rows      int
	}{
		{"SELECT 1 FROM machine_rows", 5000},
		{"SELECT key, config FROM machine_rows", 1514},
	} {
		got := s.ask(t, sql(c.statement))
		end := got.lines[len(got.lines)-1].End
		if end == nil || end.Rows != c.rows || !end.Truncated || len(got.lines) != c.rows+2 {
			t.Errorf("%s: got %d lines and the end %+v, want %d rows, truncated", c.statement, len(got.lines), end, c.rows)
		}
		if len(got.body) > 100_100 {
			t.Errorf("%s: %d bytes were sent", c.statement, len(got.body))
		}
	}
}

func TestQueryRejectsInvalidParameters(t *testing.T) {
	s := serve(t, newFile(t), query.Config{})
	cases := []struct{ body, want string }{
		{`{"statement":"SELECT ?"}`, "the statement has 1 parameters, but the request has 0 values"},
		{`{"statement":"SELECT ?","params":[1,2]}`, "the statement has 1 parameters, but the request has 2 values"},
		{`{"statement":"SELECT :a","params":{"b":1}}`, `parameter "a" has no value`},
		{`{"statement":"SELECT :a","params":{"a":1,"b":1}}`, `the statement has no parameter "b"`},
		{`{"statement":"SELECT ?","params":[9223372036854775808]}`, "parameter 1: the integer does not fit into 64 bits: send it as a string"},
		{`{"statement":"SELECT ?","params":[1e999]}`, "parameter 1: the number is out of range"},
		{`{"statement":"SELECT ?","params":[[1]]}`, `parameter 1: use null, a number, a string, true, false or {"blob":"<base64>"}`},
		{`{"statement":"SELECT ?","params":"x"}`, "invalid params: neither an array nor an object"},
		{`{"statement":" "}`, "statement is empty"},
		{`{"statement":"SELECT 1","max_rows":-1}`, "max_rows and max_ms cannot be negative"},
		{`{"statement":"SELECT ` + strings.Repeat("1", query.MaxStatement) + `"}`, "the statement is longer than 65536 bytes"},
	}
	for _, c := range cases {
		resp, err := http.Post(s.url+"/v1/view/queries", "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		st := stream{lines: newReader(resp.Body)}
		if got := st.failure(t); got.Code != "invalid" || got.Message != c.want {
			t.Errorf("%.80s: got %+v, want invalid: %s", c.body, got, c.want)
		}
		resp.Body.Close()
	}
}
