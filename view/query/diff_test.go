package query

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

func recordOf(values ...string) record {
	r := record{text: []byte("[")}
	for i, v := range values {
		if i > 0 {
			r.text = append(r.text, ',')
		}
		r.text = append(r.text, v...)
		r.ends = append(r.ends, len(r.text))
	}
	r.text = append(r.text, ']')
	return r
}

func TestCompareReportsChanges(t *testing.T) {
	columns := []string{"id", "state"}
	rows := func(list ...[2]string) (all []record) {
		for _, r := range list {
			all = append(all, recordOf(r[0], r[1]))
		}
		return all
	}
	was, changes := compare(nil, columns, []int{0}, rows([2]string{"1", "a"}, [2]string{"2", "b"}, [2]string{"2", "b"}), 1)
	if len(changes) != 3 {
		t.Fatalf("without an old result: got %d changes, want 3 inserts", len(changes))
	}
	for _, c := range []struct {
		name string
		key  []int
		rows []record
		want []string
	}{
		{"nothing", []int{0}, rows([2]string{"2", "b"}, [2]string{"1", "a"}, [2]string{"2", "b"}), nil},
		{"an update", []int{0}, rows([2]string{"1", "x"}, [2]string{"2", "b"}, [2]string{"2", "b"}), []string{`update 1 [1,x]`}},
		{"one of two equal rows is deleted", []int{0}, rows([2]string{"1", "a"}, [2]string{"2", "b"}), []string{`delete 3 [2,b]`}},
		{"another key", []int{0}, rows([2]string{"3", "a"}, [2]string{"2", "b"}, [2]string{"2", "b"}), []string{`delete 1 [1,a]`, `insert 4 [3,a]`}},
		{"all rows are deleted", []int{0}, nil, []string{`delete 1 [1,a]`, `delete 2 [2,b]`, `delete 3 [2,b]`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, changes := compare(was, columns, c.key, c.rows, 4)
			var got []string
			for _, change := range changes {
				got = append(got, fmt.Sprintf("%s %d %s", change.op, change.number, change.text))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCompareChangesYieldTheNextResult checks that a reader that applies the changes to the old
// rows has the new rows.
func TestCompareChangesYieldTheNextResult(t *testing.T) {
	draw := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) record {
		return recordOf(fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "key")), fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "value")))
	}), 0, 8)
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom([][]int{{0}, {1}, {0, 1}}).Draw(t, "columns of the key")
		var now *result
		held := map[int64]string{}
		next := int64(1)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			rows := draw.Draw(t, "rows")
			var changes []change
			now, changes = compare(now, nil, key, rows, next)
			for _, c := range changes {
				_, there := held[c.number]
				if there == (c.op == opInsert) {
					t.Fatalf("%s of row %d, which exists: %v", c.op, c.number, there)
				}
				switch c.op {
				case opInsert:
					next++
					held[c.number] = string(c.text)
				case opUpdate:
					held[c.number] = string(c.text)
				case opDelete:
					delete(held, c.number)
				}
			}
			var want []string
			for _, r := range rows {
				want = append(want, string(r.text))
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, slices.Sorted(maps.Values(held))); diff != "" {
				t.Fatalf("after the changes (-rows +held):\n%s", diff)
			}
		}
	})
}

func TestKeyColumns(t *testing.T) {
	for _, c := range []struct {
		columns, key []string
		want         []int
	}{
		{[]string{"name", "id"}, nil, []int{1}},
		{[]string{"org", "name"}, nil, []int{1}},
		{[]string{"a", "b"}, nil, []int{0, 1}},
		{[]string{"a", "b", "id"}, []string{"b", "a"}, []int{1, 0}},
	} {
		got, err := keyColumns(c.columns, c.key)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("keyColumns(%q, %q) = %v, %v, want %v", c.columns, c.key, got, err, c.want)
		}
	}
	if _, err := keyColumns([]string{"a"}, []string{"b"}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("a key that is not a column: got %v, want invalid", err)
	}
}

func TestHistoryRetainsTheLatestChanges(t *testing.T) {
	h := history{first: 1, limit: 10 * (lineOverhead + 2)}
	for i := range 25 {
		h.add(fmt.Appendf(nil, "%02d", i+1))
	}
	if h.first != 16 || h.last() != 25 {
		t.Fatalf("got changes %d to %d, want 16 to 25", h.first, h.last())
	}
	for _, c := range []struct {
		after int64
		want  int
		code  bourse.Code
	}{{25, 0, ""}, {24, 1, ""}, {15, 10, ""}, {14, 0, bourse.CodeNotFound}, {26, 0, bourse.CodeInvalid}, {-1, 0, bourse.CodeInvalid}} {
		lines, err := h.after(c.after, 1000)
		if len(lines) != c.want || bourse.CodeOf(err) != c.code {
			t.Errorf("after %d: got %d lines and %v, want %d and code %q", c.after, len(lines), err, c.want, c.code)
		}
	}
	if lines, _ := h.after(15, 5); len(lines) != 3 || string(lines[0]) != "16" {
		t.Errorf("of at most 5 bytes after 15: got %q, want three lines from 16", lines)
	}
	if !h.nearlyDropped(16) || h.nearlyDropped(20) {
		t.Errorf("nearlyDropped(16) = %v, nearlyDropped(20) = %v, want true and false", h.nearlyDropped(16), h.nearlyDropped(20))
	}
}

func TestStringsAndFloatsAreJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		var got string
		if err := json.Unmarshal(appendString(nil, s), &got); err != nil || got != string([]rune(s)) {
			t.Fatalf("%q became %s: %v", s, appendString(nil, s), err)
		}
		f := rapid.Float64().Draw(t, "float")
		raw := appendFloat(nil, f)
		var back float64
		if err := json.Unmarshal(raw, &back); err != nil || back != f {
			t.Fatalf("%v became %s: %v", f, raw, err)
		}
		if v, err := readNumber(string(raw)); err != nil || v != f {
			t.Fatalf("%s is read as %v: %v", raw, v, err)
		}
	})
	for f, want := range map[float64]string{1: "1.0", -0.5: "-0.5", 1e21: "1e+21", math.Inf(1): `"Inf"`} {
		if got := string(appendFloat(nil, f)); got != want {
			t.Errorf("%v: got %s, want %s", f, got, want)
		}
	}
}
