package query_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse/view/query"
)

const app = `INSERT OR REPLACE INTO app_rows (key, site, epoch, seq, at, clock, hash, org) VALUES ('%s', 's', 1, 1, 1, 1, 1, '%s');`

// text formats a line for comparison.
func text(tb testing.TB, l query.Line) string {
	tb.Helper()
	var v any
	switch {
	case l.Columns != nil:
		v = []any{"columns", l.Columns}
	case l.Row != nil:
		v = []any{"row", l.Row}
	case l.End != nil:
		v = []any{"end", l.End.Change}
	case l.Change != nil:
		v = []any{"change", l.Change}
	default:
		v = l.Error
	}
	raw, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(raw)
}

func want(tb testing.TB, s *stream, lines ...string) {
	tb.Helper()
	for _, line := range lines {
		if got := text(tb, s.next(tb)); got != line {
			tb.Fatalf("got the line %s, want %s", got, line)
		}
	}
}

func TestSubscriptionSendsRowsThenChanges(t *testing.T) {
	f := newFile(t)
	s := serve(t, f, query.Config{Subscriptions: query.SubscriptionLimits{Pause: time.Millisecond}})
	f.write(t, fmt.Sprintf(app, "web", "acme"))
	ask := sql("SELECT name, org FROM apps WHERE org <> ?", "none")

	one := s.subscribe(t, ask, "", "")
	if one.status != http.StatusCreated || one.id == "" {
		t.Fatalf("got status %d and id %q, want 201 and an id", one.status, one.id)
	}
	want(t, one, `["columns",["name","org"]]`, `["row",[1,["web","acme"]]]`, `["end",0]`)
	f.write(t, fmt.Sprintf(app, "api", "acme"))
	want(t, one, `["change",[1,"insert",2,["api","acme"]]]`)
	f.write(t, fmt.Sprintf(app, "web", "evil"))
	want(t, one, `["change",[2,"update",1,["web","evil"]]]`)

	two := s.subscribe(t, ask, "", "")
	if two.id != one.id {
		t.Errorf("the same query created another subscription")
	}
	want(t, two, `["columns",["name","org"]]`, `["row",[2,["api","acme"]]]`, `["row",[1,["web","evil"]]]`, `["end",2]`)
	one.close()
	f.write(t, `DELETE FROM app_rows WHERE key = 'api'`)
	want(t, two, `["change",[3,"delete",2,["api","acme"]]]`)

	again := s.subscribe(t, nil, one.id, "1")
	want(t, again, `["columns",["name","org"]]`, `["change",[2,"update",1,["web","evil"]]]`, `["change",[3,"delete",2,["api","acme"]]]`)
	fresh := s.subscribe(t, nil, one.id, "")
	want(t, fresh, `["columns",["name","org"]]`, `["row",[1,["web","evil"]]]`, `["end",3]`)
	if got := f.watched(); len(got) != 1 || !slices.Contains(got[0], "app") {
		t.Errorf("the engine watches %q, want app once", got)
	}
}

func TestSubscriptionRefusals(t *testing.T) {
	f := newFile(t)
	s := serve(t, f, query.Config{Subscriptions: query.SubscriptionLimits{Rows: 5, Max: 2, Readers: 3, Time: 200 * time.Millisecond}})
	f.machines(t, 6)
	for _, c := range []struct {
		body any
		want string
	}{
		{sql("DELETE FROM apps"), "invalid: SQL: cannot modify apps because it is a view"},
		{sql("SELECT * FROM machines"), "invalid: the result is too large for a subscription: more than 5 rows or 8388608 bytes"},
		{map[string]any{"statement": "SELECT 1", "key": []string{"x"}}, `invalid: the result has no column "x" for the key`},
		{sql("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"), "timeout: the statement took longer than 200ms"},
	} {
		st := s.subscribe(t, c.body, "", "")
		if got := st.failure(t); got.Code+": "+got.Message != c.want {
			t.Errorf("%v: got %+v, want %s", c.body, got, c.want)
		}
	}
	for i, c := range []string{"", "", "rate_limited: 2 subscriptions are already active: try again"} {
		st := s.subscribe(t, sql("SELECT "+itoa(i)), "", "")
		if c == "" {
			want(t, st, `["columns",["`+itoa(i)+`"]]`)
			continue
		}
		if got := st.failure(t); got.Code+": "+got.Message != c {
			t.Errorf("one subscription too many: got %+v, want %s", got, c)
		}
	}
	last := s.subscribe(t, sql("SELECT 1"), "", "")
	for _, c := range []struct{ id, from, want string }{
		{"none", "", `not_found: subscription "none" not found: it may have ended; subscribe again`},
		{last.id, "7", "invalid: change 7 does not exist: the latest one is 0"},
		{last.id, "x", `invalid: invalid from "x": use the number of a change`},
	} {
		last.close()
		var got string
		for range 100 { // wait until the closed reader has been removed
			f := s.subscribe(t, nil, c.id, c.from).failure(t)
			if got = f.Code + ": " + f.Message; f.Code != "rate_limited" {
				break
			}
			runtime.Gosched()
		}
		if got != c.want {
			t.Errorf("resume %s from %s: got %s, want %s", c.id, c.from, got, c.want)
		}
	}
}

// held is a reader's copy of the result, which it builds from the lines.
type held struct {
	id   string
	at   int64
	rows map[int64]string
}

// take applies a line, which must continue the previous one.
func (h *held) take(t fataler, l query.Line) {
	switch {
	case l.Row != nil:
		h.rows[number(l.Row[0])] = values(l.Row[1])
	case l.End != nil:
		h.at = l.End.Change
	case l.Change != nil:
		n, row := number(l.Change[0]), number(l.Change[2])
		if n != h.at+1 {
			t.Fatalf("change %d came after %d", n, h.at)
		}
		h.at = n
		_, there := h.rows[row]
		op := l.Change[1].(string)
		if there == (op == "insert") {
			t.Fatalf("%s of row %d, which exists: %v", op, row, there)
		}
		if h.rows[row] = values(l.Change[3]); op == "delete" {
			delete(h.rows, row)
		}
	}
}

type fataler interface {
	Fatalf(format string, args ...any)
}

func number(v any) int64 {
	n, _ := v.(json.Number).Int64()
	return n
}

func values(v any) string { return fmt.Sprint(v) }

// resumer is a reader that disconnects at random and resumes.
type resumer struct {
	held
	server *server
	ask    any
	stream *stream
}

// open subscribes or resumes. If the changes are no longer available, it subscribes again.
func (r *resumer) open(tb testing.TB, t fataler) {
	tb.Helper()
	if r.id != "" {
		r.stream = r.server.subscribe(tb, r.ask, r.id, fmt.Sprint(r.at))
		if r.stream.status == http.StatusOK {
			return
		}
		if got := r.stream.failure(tb); got.Code != "not_found" {
			t.Fatalf("resume: %+v", got)
		}
	}
	r.stream = r.server.subscribe(tb, r.ask, "", "")
	r.held = held{id: r.stream.id, rows: map[int64]string{}}
	for l := r.stream.next(tb); ; l = r.stream.next(tb) {
		if r.take(t, l); l.End != nil {
			return
		}
	}
}

// until reads lines until the result contains a row with word.
func (r *resumer) until(tb testing.TB, t fataler, word string) {
	tb.Helper()
	for {
		for _, row := range r.rows {
			if strings.Contains(row, word) {
				return
			}
		}
		l := r.stream.next(tb)
		if r.take(t, l); l.Error != nil {
			r.open(tb, t)
		}
	}
}

// TestAResumingReaderHasTheResult checks that a reader that disconnects and resumes at random times ends up with the
// statement's result.
func TestAResumingReaderHasTheResult(t *testing.T) {
	f := newFile(t)
	s := serve(t, f, query.Config{Subscriptions: query.SubscriptionLimits{
		Pause: time.Microsecond, History: 3000, Max: 1000, Readers: 10_000, IdleTime: 300 * time.Millisecond,
	}})
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		f.write(t, "DELETE FROM app_rows")
		statement := fmt.Sprintf(rapid.SampledFrom([]string{
			"SELECT name, org, %d AS round FROM apps", "SELECT org, %d AS round FROM apps", "SELECT org AS id, count(*), %d AS round FROM apps GROUP BY org",
		}).Draw(rt, "statement"), round)
		r := &resumer{server: s, ask: sql(statement)}
		r.open(t, rt)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "app")
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				f.write(t, "DELETE FROM app_rows WHERE key = '"+name+"'")
			case 1:
				r.stream.close()
				r.open(t, rt)
			case 2:
				if r.stream.lines.Buffered() > 0 {
					r.take(rt, r.stream.next(t))
				}
			default:
				f.write(t, fmt.Sprintf(app, name, rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "org")))
			}
		}
		// The changes of one run may come in any order, but changes of an earlier run precede
		// those of a later run. So when end2 arrives, all changes before end1 have arrived.
		for _, last := range []string{"end1", "end2"} {
			f.write(t, fmt.Sprintf(app, last, last))
			r.until(t, rt, last+" ")
		}
		var want []string
		for _, l := range s.ask(t, sql(statement)).lines {
			if l.Row != nil {
				want = append(want, values(any(l.Row)))
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, slices.Sorted(maps.Values(r.rows))); diff != "" {
			rt.Fatalf("the reader's result differs (-statement +reader):\n%s", diff)
		}
		r.stream.close()
	})
}
