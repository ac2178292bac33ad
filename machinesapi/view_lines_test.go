package machinesapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// collect returns all lines of a result, and the error that ended it.
func collect(seq func(func(machinesapi.ViewLine, error) bool)) (lines []machinesapi.ViewLine, err error) {
	for line, e := range seq {
		if e != nil {
			return lines, e
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func TestQuery(t *testing.T) {
	client, last := replying(t, 200, `{"columns":["id","n"]}
{"row":["a",9223372036854775807]}
{"heartbeat":1}

{"row":[null,1.50]}
{"row":[{"blob":"AP8="},{"blob":"?"}]}
{"end":{"rows":2,"ms":0.25,"truncated":true}}
{"row":["after the end, not read"]}
`)
	q := machinesapi.ViewQuery{Statement: "SELECT ?", Params: []any{"x", 1}}
	got, err := collect(client.Query(t.Context(), q))
	if err != nil {
		t.Fatal(err)
	}
	want := []machinesapi.ViewLine{
		{Columns: []string{"id", "n"}},
		{Row: &machinesapi.ViewRow{Cells: []any{"a", json.Number("9223372036854775807")}}},
		{Row: &machinesapi.ViewRow{Cells: []any{nil, json.Number("1.50")}}},
		{Row: &machinesapi.ViewRow{Cells: []any{machinesapi.ViewBlob{Blob: []byte{0, 255}}, map[string]any{"blob": "?"}}}},
		{End: &machinesapi.ViewEnd{Rows: 2, MS: 0.25, Truncated: true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	body, _ := io.ReadAll(last.Body)
	if last.Method != "POST" || last.URL.Path != "/v1/view/queries" || string(body) != `{"statement":"SELECT ?","params":["x",1]}` {
		t.Errorf("sent %s %s %s", last.Method, last.URL.Path, body)
	}
}

// TestInvalidQueryResults checks that an incomplete or invalid result always ends with an error.
func TestInvalidQueryResults(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		code bourse.Code
		text string
	}{
		"nothing":            {"", bourse.CodeUnavailable, "incomplete"},
		"cut between lines":  {"{\"columns\":[\"a\"]}\n{\"row\":[1]}\n", bourse.CodeUnavailable, "incomplete"},
		"cut in a line":      {"{\"columns\":[\"a\"]}\n{\"row\":[1", bourse.CodeUnavailable, "incomplete"},
		"cut in the end":     {"{\"columns\":[\"a\"]}\n{\"end\":{\"rows\":0}}", bourse.CodeUnavailable, "incomplete"},
		"the server's error": {"{\"columns\":[\"a\"]}\n{\"error\":{\"code\":\"timeout\",\"message\":\"too long\"}}\n", bourse.CodeTimeout, "too long"},
		"an internal error":  {"{\"error\":{\"code\":\"internal\",\"message\":\"disk\"}}\n", bourse.CodeInternal, "disk"},
		"an error of none":   {"{\"error\":{}}\n", bourse.CodeInternal, ""},
		"a web page":         {"<html>\n", bourse.CodeInternal, "line 1"},
		"an array":           {"[1]\n", bourse.CodeInternal, "line 1"},
		"a row first":        {"{\"row\":[1]}\n", bourse.CodeInternal, "unexpected"},
		"an end first":       {"{\"end\":{}}\n", bourse.CodeInternal, "unexpected"},
		"a change":           {"{\"columns\":[]}\n{\"change\":[1,\"insert\",1,[]]}\n", bourse.CodeInternal, "unexpected"},
		"columns twice":      {"{\"columns\":[]}\n{\"columns\":[]}\n", bourse.CodeInternal, "second line with columns"},
		"too few cells":      {"{\"columns\":[\"a\",\"b\"]}\n{\"row\":[1]}\n", bourse.CodeInternal, "1 cells, want 2"},
		"too many cells":     {"{\"columns\":[\"a\"]}\n{\"row\":[1,2]}\n", bourse.CodeInternal, "2 cells, want 1"},
		"an invalid row":     {"{\"columns\":[\"a\"]}\n{\"row\":7}\n", bourse.CodeInternal, "line 2"},
		"a huge line":        {strings.Repeat("x", machinesapi.MaxViewLine+1), bourse.CodeInternal, "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := replying(t, 200, c.body)
			got, err := collect(client.Query(t.Context(), machinesapi.ViewQuery{Statement: "SELECT 1"}))
			if bourse.CodeOf(err) != c.code || !strings.Contains(bourse.MessageOf(err)+err.Error(), c.text) {
				t.Errorf("%v after %d lines, want %s with %q", err, len(got), c.code, c.text)
			}
		})
	}
}

func TestQueryErrors(t *testing.T) {
	client, _ := replying(t, 400, `{"error":"no such table: x","code":"invalid"}`)
	if _, err := collect(client.Query(t.Context(), machinesapi.ViewQuery{})); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("a rejected statement: %v, want invalid", err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	client = &machinesapi.Client{BaseURL: gone.URL}
	if _, err := collect(client.Query(t.Context(), machinesapi.ViewQuery{})); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("no connection: %v, want unavailable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := collect(client.Query(ctx, machinesapi.ViewQuery{})); bourse.CodeOf(err) != bourse.CodeCanceled {
		t.Errorf("canceled by the caller: %v, want canceled", err)
	}
}

func TestSubscription(t *testing.T) {
	client, last := replying(t, 200, `{"columns":["id"]}
{"row":[7,["a"]]}
{"end":{"change":4}}
{"change":[5,"update",7,["b"]]}
{"change":[6,"delete",7,[]]}
`, machinesapi.HeaderSubscription, "s1")
	sub, err := client.Subscribe(t.Context(), machinesapi.ViewQuery{Statement: "SELECT id FROM machines"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := collect(sub.Lines())
	if bourse.CodeOf(err) != bourse.CodeUnavailable || sub.ID != "s1" || sub.Change() != 6 {
		t.Errorf("subscription %q ends with %v at change %d, want s1, unavailable and 6", sub.ID, err, sub.Change())
	}
	want := []machinesapi.ViewLine{
		{Columns: []string{"id"}},
		{Row: &machinesapi.ViewRow{ID: 7, Cells: []any{"a"}}},
		{End: &machinesapi.ViewEnd{Change: 4}},
		{Change: &machinesapi.ViewChange{ID: 5, Kind: machinesapi.RowUpdated, Row: machinesapi.ViewRow{ID: 7, Cells: []any{"b"}}}},
		{Change: &machinesapi.ViewChange{ID: 6, Kind: machinesapi.RowDeleted, Row: machinesapi.ViewRow{ID: 7, Cells: []any{}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	if _, err := client.Resume(t.Context(), "s/1", 6); err != nil || last.URL.RequestURI() != "/v1/view/subscriptions/s%2F1?from=6" {
		t.Errorf("resumed with %s, %v", last.URL.RequestURI(), err)
	}
}

// TestChangesAreContiguous checks that missing changes are always detected.
func TestChangesAreContiguous(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		code bourse.Code
		good int // number of lines before the error
	}{
		"the next":        {`{"change":[7,"insert",1,[1]]}`, bourse.CodeUnavailable, 1}, // the stream breaks after this line
		"one missing":     {`{"change":[8,"insert",1,[1]]}`, bourse.CodeUnavailable, 0},
		"an old one":      {`{"change":[6,"insert",1,[1]]}`, bourse.CodeUnavailable, 0},
		"of no kind":      {`{"change":[7,"truncate",1,[1]]}`, bourse.CodeInternal, 0},
		"too short":       {`{"change":[7,"insert",1]}`, bourse.CodeInternal, 0},
		"no id":           {`{"change":["x","insert",1,[1]]}`, bourse.CodeInternal, 0},
		"negative id":     {`{"change":[-7,"insert",1,[1]]}`, bourse.CodeInternal, 0},
		"no array":        {`{"change":{"id":7}}`, bourse.CodeInternal, 0},
		"cells, none":     {`{"change":[7,"insert",1,{}]}`, bourse.CodeInternal, 0},
		"other cells":     {"{\"columns\":[\"a\",\"b\"]}\n" + `{"change":[7,"update",1,[1]]}`, bourse.CodeInternal, 1},
		"overflowing":     {`{"change":[18446744073709551616,"insert",1,[1]]}`, bourse.CodeInternal, 0},
		"a second result": {"{\"columns\":[\"a\"]}\n{\"end\":{\"change\":1}}\n" + `{"change":[2,"insert",1,[1]]}`, bourse.CodeUnavailable, 3},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := replying(t, 200, c.body+"\n")
			sub, err := client.Resume(t.Context(), "s1", 6)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sub.Close() }()
			got, err := collect(sub.Lines())
			if bourse.CodeOf(err) != c.code || len(got) != c.good {
				t.Errorf("%v after %d lines, want %s after %d", err, len(got), c.code, c.good)
			}
		})
	}
}

// FuzzViewAnswer sends arbitrary replies to the client. Reading must terminate, rows must match
// their columns, and there must be no gaps between changes.
func FuzzViewAnswer(f *testing.F) {
	f.Add("{\"columns\":[\"a\"]}\n{\"row\":[1]}\n{\"end\":{\"rows\":1}}\n", false)
	f.Add("{\"columns\":[\"a\"]}\n{\"row\":[1,[null]]}\n{\"end\":{\"change\":3}}\n{\"change\":[4,\"delete\",1,[]]}\n", true)
	f.Add("{\"error\":{\"code\":\"timeout\"}}\n", false)
	f.Add("{\"columns\":null,\"row\":[[[[1e999]]]]}\n\n\x00\xff", true)
	f.Fuzz(func(t *testing.T, body string, live bool) {
		client := &machinesapi.Client{BaseURL: "http://view", HTTP: &http.Client{Transport: fixed(body)}}
		seq := client.Query(t.Context(), machinesapi.ViewQuery{})
		if live {
			sub, err := client.Subscribe(t.Context(), machinesapi.ViewQuery{})
			if err != nil {
				t.Fatal(err)
			}
			seq = sub.Lines()
		}
		var columns []string
		var change uint64
		whole := false
		for line, err := range seq {
			switch {
			case err != nil:
				if live || !whole {
					return
				}
				t.Fatalf("a complete result ends with %v", err)
			case line.Columns != nil:
				columns = line.Columns
			case line.Row != nil && len(line.Row.Cells) != len(columns):
				t.Fatalf("the row has %d cells, want %d", len(line.Row.Cells), len(columns))
			case line.End != nil:
				whole, change = true, line.End.Change
			case line.Change != nil:
				if change++; line.Change.ID != change {
					t.Fatalf("change %d, want %d", line.Change.ID, change)
				}
			}
		}
		if live || !whole {
			t.Fatal("an incomplete result ended without an error")
		}
	})
}

// fixed is a transport that replies to every request with the same body.
type fixed string

func (f fixed) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(f))), Request: r}, nil
}
