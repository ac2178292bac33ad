package sql

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// answers is an API that replies to every query with the same lines, except to the query
// for the schema. It records the last query.
type answers struct {
	lines  string
	schema string
	last   struct{ Statement string }
}

const someSchema = `{"columns":["name","name","about"]}
{"row":["apps","name","Apps."]}
{"row":["apps","created_at","Apps."]}
{"row":["machines","id","Every machine, in words that are longer than a line is."]}
{"row":["machines","region",""]}
{"row":["machines","memory_mb",""]}
{"end":{"rows":5}}
`

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct{ Statement string }
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/view/queries" {
		http.Error(w, "not a query", http.StatusTeapot)
		return
	}
	w.Header().Set("Content-Type", machinesapi.TypeLines)
	if q.Statement == schemaQuery {
		schema := a.schema
		if schema == "" {
			schema = someSchema
		}
		_, _ = io.WriteString(w, schema)
		return
	}
	a.last = q
	if body, refused := strings.CutPrefix(a.lines, "400 "); refused {
		clitest.Failure(bourse.CodeInvalid, body).ServeHTTP(w, r)
		return
	}
	_, _ = io.WriteString(w, a.lines)
}

const someRows = `{"columns":["id","memory_mb","load","config","id"]}
{"row":["148e21ea1d5389",256,0.5,"{\"image\":\"host\",\"env\":{\"A\":\"<1>\"}}","a,b"]}
{"row":["148e21aabbccdd",9223372036854775807,null,"","say \"hi\"\nand go"]}
{"end":{"rows":2,"ms":0.42}}
`

func TestSQL(t *testing.T) {
	a := &answers{lines: someRows}
	for name, flags := range map[string][]string{"sql_wide": nil, "sql_json_wide": {"--json"}, "sql_csv_wide": {"--csv"}} {
		got := line.Against(t, a, append([]string{"sql", "SELECT *\nFROM machines"}, flags...)...)
		if got.Code != 0 || got.Err != "" {
			t.Errorf("%s: exit status %d, stderr %q", name, got.Code, got.Err)
		}
		clitest.Golden(t, name, got.Out)
	}
	if a.last.Statement != "SELECT *\nFROM machines" {
		t.Errorf("sent %q", a.last.Statement)
	}
}

// TestSQLOutputCanBeParsed checks that standard JSON and CSV parsers read the original
// values from the output.
func TestSQLOutputCanBeParsed(t *testing.T) {
	got := line.Against(t, &answers{lines: someRows}, "sql", "SELECT 1", "--json")
	d := json.NewDecoder(strings.NewReader(got.Out))
	d.UseNumber()
	var objects []map[string]any
	if err := d.Decode(&objects); err != nil {
		t.Fatalf("%v in %s", err, got.Out)
	}
	if objects[1]["memory_mb"] != json.Number("9223372036854775807") || objects[1]["load"] != nil || objects[1]["id:1"] != "say \"hi\"\nand go" {
		t.Errorf("read %v", objects[1])
	}
	got = line.Against(t, &answers{lines: someRows}, "sql", "SELECT 1", "--csv")
	records, err := csv.NewReader(strings.NewReader(got.Out)).ReadAll()
	if err != nil {
		t.Fatalf("%v in %s", err, got.Out)
	}
	want := [][]string{
		{"id", "memory_mb", "load", "config", "id"},
		{"148e21ea1d5389", "256", "0.5", `{"image":"host","env":{"A":"<1>"}}`, "a,b"},
		{"148e21aabbccdd", "9223372036854775807", "", "", "say \"hi\"\nand go"},
	}
	if diff := cmp.Diff(want, records); diff != "" {
		t.Errorf("CSV (-want +got):\n%s", diff)
	}
	if !strings.Contains(got.Out, `,,"",`) {
		t.Errorf("NULL and an empty text cannot be distinguished in %q", got.Out)
	}
}

func TestSQLNoRows(t *testing.T) {
	a := &answers{lines: "{\"columns\":[\"id\",\"app\"]}\n{\"end\":{\"rows\":0}}\n"}
	for want, flags := range map[string][]string{"id  app\n": nil, "[]\n": {"--json"}, "id,app\r\n": {"--csv"}} {
		if got := line.Against(t, a, append([]string{"sql", "SELECT 1"}, flags...)...); got.Out != want || got.Code != 0 {
			t.Errorf("%v: exit status %d, %q, want 0 and %q", flags, got.Code, got.Out, want)
		}
	}
}

// TestSQLIncompleteAnswer checks that the rows of an incomplete answer are printed, and
// that the command fails.
func TestSQLIncompleteAnswer(t *testing.T) {
	rows, _, _ := strings.Cut(someRows, `{"end"`)
	got := line.Against(t, &answers{lines: rows}, "sql", "SELECT 1", "--json")
	if got.Code != 7 || !strings.Contains(got.Err, "incomplete") || json.Valid([]byte(got.Out)) {
		t.Errorf("interrupted: exit status %d, %q, %q; want 7 and incomplete JSON", got.Code, got.Err, got.Out)
	}
	got = line.Against(t, &answers{lines: rows}, "sql", "SELECT 1")
	if got.Code != 7 || !strings.Contains(got.Out, "148e21aabbccdd") {
		t.Errorf("interrupted: exit status %d, %q; want 7 and the received rows", got.Code, got.Out)
	}
	got = line.Against(t, &answers{lines: rows + `{"end":{"rows":2,"truncated":true}}` + "\n"}, "sql", "SELECT 1")
	if got.Code != 2 || !strings.Contains(got.Err, "truncated after 2 rows") || !strings.Contains(got.Out, "148e21aabbccdd") {
		t.Errorf("truncated: exit status %d, %q, %q; want 2, the limit and the rows", got.Code, got.Err, got.Out)
	}
}

func TestSQLStatementFromInput(t *testing.T) {
	a := &answers{lines: someRows}
	server := httptest.NewServer(a)
	defer server.Close()
	for name, c := range map[string]struct {
		args []string
		in   string
		want string // expected query; "" if the tables are listed instead
		code int
	}{
		"a dash":                  {[]string{"-"}, "SELECT\n 1\n", "SELECT\n 1", 0},
		"a pipe":                  {nil, "SELECT 2", "SELECT 2", 0},
		"an empty pipe":           {nil, " \n", "", 0},
		"a dash, and empty input": {[]string{"-"}, "", "", 2},
		"an empty argument":       {[]string{" "}, "SELECT 3", "", 2},
		"too long":                {[]string{"-"}, strings.Repeat("x", maxStatement+1), "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			a.last.Statement = ""
			in, _ := clitest.Buffer(c.in)
			out, printed := clitest.Buffer("")
			errs, said := clitest.Buffer("")
			env := cli.Env{In: in, Out: out, Err: errs, Getenv: func(string) string { return "" }}
			code := line.Main(t.Context(), env, append([]string{"--api", server.URL, "sql"}, c.args...)...)
			if code != c.code || a.last.Statement != c.want {
				t.Errorf("exit status %d, statement %q, want %d and %q (%s)", code, a.last.Statement, c.code, c.want, said)
			}
			if listed := strings.Contains(printed.String(), "apps"); listed != (c.code == 0 && c.want == "") {
				t.Errorf("printed %q", printed)
			}
		})
	}
}

func TestSQLTables(t *testing.T) {
	a := &answers{}
	clitest.Golden(t, "sql_tables", line.Against(t, a, "sql", "--tables").Out)
	clitest.Golden(t, "sql_tables_json", line.Against(t, a, "sql", "--tables", "--json").Out)
	if got := line.Against(t, a, "sql", "--tables", "--csv"); !strings.Contains(got.Out, "machines,memory_mb\r\n") {
		t.Errorf("as CSV: %q", got.Out)
	}
}

func TestSQLHints(t *testing.T) {
	for text, want := range map[string][]string{
		"no such table: machine":                {"table machines", "tables apps, machines"},
		"SQL logic error: no such table: fleet": {"tables apps, machines"},
		"no such column: m.regoin":              {"column region", "--tables"},
		"no such column: memory_mb":             {"memory_mb is a column of machines"},
		"no such column: gru":                   {"single quotes"},
	} {
		got := line.Against(t, &answers{lines: "400 " + text}, "sql", "SELECT 1")
		if got.Code != 2 || !strings.Contains(got.Err, "error: "+text) {
			t.Errorf("%s: exit status %d, %q", text, got.Code, got.Err)
		}
		for _, w := range want {
			if !strings.Contains(got.Err, w) {
				t.Errorf("%s: %q does not mention %q", text, got.Err, w)
			}
		}
	}
	got := line.Against(t, &answers{lines: "400 no such table: x", schema: "<html>\n"}, "sql", "SELECT 1")
	if got.Code != 2 || !strings.Contains(got.Err, "try: bourse sql --tables") {
		t.Errorf("if the tables cannot be fetched: exit status %d, %q", got.Code, got.Err)
	}
}

func TestSQLParams(t *testing.T) {
	a := &answers{lines: someRows}
	for _, c := range []struct {
		words []string
		want  string // expected request
	}{
		{[]string{"shop", "42", "-1.5", "null", `"42"`}, `{"statement":"S","params":["shop",42,-1.5,null,"42"]}`},
		{[]string{"148e21", "007", "1.", "+1", "NaN", `"open`, "", "12345678901234567890123"}, `{"statement":"S","params":["148e21","007","1.","+1","NaN","\"open","","12345678901234567890123"]}`},
		{[]string{":app=shop", "@n=2", "$x=a=b\nc"}, `{"statement":"S","params":{"app":"shop","n":2,"x":"a=b\nc"}}`},
		{[]string{":=x", ":a"}, `{"statement":"S","params":[":=x",":a"]}`},
	} {
		args := []string{"sql", "S"}
		for _, w := range c.words {
			args = append(args, "--param", w)
		}
		if got := line.Against(t, a, args...); got.Code != 0 {
			t.Errorf("%q: exit status %d, %s", c.words, got.Code, got.Err)
		}
		var sent bytes.Buffer
		if values, names, err := parseParams(c.words); err == nil {
			e := json.NewEncoder(&sent)
			_ = e.Encode(machinesapi.ViewQuery{Statement: "S", Params: values, Named: names})
		}
		if got := strings.TrimSpace(sent.String()); got != c.want {
			t.Errorf("%q: sent %s, want %s", c.words, got, c.want)
		}
	}
	for _, words := range [][]string{{":a=1", ":a=2"}, {":a=1", "2"}} {
		if _, _, err := parseParams(words); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%q: %v, want invalid", words, err)
		}
	}
}

func FuzzParamValue(f *testing.F) {
	for _, s := range []string{"1", "-0", `"a"`, `"`, "null", "1e9", "0x1", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, err := json.Marshal(paramValue(s))
		if err != nil || !json.Valid(text) {
			t.Errorf("%q becomes %s, %v, which is not JSON", s, text, err)
		}
	})
}

const hostileRows = `{"columns":["evil\u001b[2J","b"]}
{"row":["\u001b]0;title\u0007\u009b31m\u202e\u200b\r\u007f",{"a":"\u001b[1m"}]}
{"end":{"rows":1}}
`

// TestRowsAreEscaped checks that control characters in rows are escaped.
func TestRowsAreEscaped(t *testing.T) {
	server := httptest.NewServer(&answers{lines: hostileRows})
	defer server.Close()
	for _, flag := range []string{"", "--json", "--csv"} {
		var b bytes.Buffer
		in, _ := clitest.Buffer("")
		errs, _ := clitest.Buffer("")
		env := cli.Env{In: in, Out: cli.Stream{ReadWriter: &b, TTY: true, Width: 80}, Err: errs, Getenv: func(string) string { return "" }, Now: clitest.Now.UTC}
		args := []string{"--api", server.URL, "sql", "SELECT 1"}
		if flag != "" {
			args = append(args, flag)
		}
		if code := line.Main(t.Context(), env, args...); code != 0 {
			t.Fatalf("%s: exit status %d, %v", flag, code, errs)
		}
		plain := strings.ReplaceAll(b.String(), "\r\n", "\n") // remove the CSV line ends, which contain a carriage return
		if strings.ContainsAny(plain, "\x1b\x07\u009b\u202e\u200b\r\x7f") {
			t.Errorf("%s: the terminal receives %q", flag, b.String())
		}
		if flag == "--json" {
			var got []map[string]any
			if err := json.Unmarshal(b.Bytes(), &got); err != nil || got[0]["evil\x1b[2J"] != "\x1b]0;title\x07\u009b31m\u202e\u200b\r\x7f" {
				t.Errorf("the JSON is parsed as %v, %v", got, err)
			}
		}
	}
}

// TestSQLFitsTheTerminal checks that cells are shortened until the table fits the terminal,
// and that each row is printed as a list if cells would become too short.
func TestSQLFitsTheTerminal(t *testing.T) {
	for name, c := range map[string]struct {
		width, columns int
		lists          bool
	}{"cut": {60, 4, false}, "lists": {60, 9, true}, "tiny": {3, 2, true}} {
		var b bytes.Buffer
		p := &tableRows{out: cli.Stream{ReadWriter: &b, TTY: true, Width: c.width}}
		var columns []string
		var cells []any
		for i := range c.columns {
			columns = append(columns, "column"+string(rune('a'+i)))
			cells = append(cells, strings.Repeat("é", 200))
		}
		if err := errors.Join(p.begin(columns), p.row(changedRow{cells: cells}), p.end()); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := len([]rune(line)) - 1; n > max(c.width, 2*cli.MinWidth+2) {
				t.Errorf("%s: a line has %d characters on a terminal with %d columns: %q", name, n, c.width, line)
			}
		}
		if strings.Contains(b.String(), "-- row 1") != c.lists {
			t.Errorf("%s: printed\n%s", name, b.String())
		}
	}
}

// TestLongAnswersArePrintedInChunks checks that rows are printed before the answer is
// complete and that later rows are aligned.
func TestLongAnswersArePrintedInChunks(t *testing.T) {
	var b bytes.Buffer
	p := &tableRows{out: cli.Stream{ReadWriter: &b}}
	if err := p.begin([]string{"n", "x"}); err != nil {
		t.Fatal(err)
	}
	for range tableChunk {
		if err := p.row(changedRow{cells: []any{json.Number("1"), "a"}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(b.String(), "\n"); n != tableChunk+1 {
		t.Errorf("%d lines were printed after %d rows", n, tableChunk)
	}
	if err := errors.Join(p.row(changedRow{cells: []any{json.Number("1000"), "b"}}), p.end()); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(b.String(), "1  a\n1000  b\n") || strings.Count(b.String(), "x") != 1 {
		t.Errorf("the output ends with %q", b.String()[b.Len()-20:])
	}
}
