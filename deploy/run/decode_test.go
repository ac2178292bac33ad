package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

// FuzzNoted checks that adding a note preserves the other members of a release's metadata,
// and that the note never exceeds the available size.
func FuzzNoted(f *testing.F) {
	f.Add([]byte(`{"bourse_want":{"app":"shop"},"n":12345678901234567890,"html":"<&>"}`), "ana@laptop", 3)
	f.Add([]byte(`{"bourse_run":{"why":"it failed"}}`), "", 0)
	f.Add([]byte(`null`), "bo", 1)
	f.Add([]byte(`[1]`), "bo", 1)
	f.Add([]byte(`{"a":1,"a":2}`), "\xff", 2000)
	f.Add([]byte(`{"a":"`+strings.Repeat("x", 63<<10)+`"}`), strings.Repeat("y", 3000), 100)
	f.Fuzz(func(t *testing.T, metadata []byte, text string, left int) {
		note := Note{By: text, Why: text}
		for i := range min(max(left, 0), 2000) {
			note.Left = append(note.Left, Leftover{Step: i, Machine: "148e21ea1d5301", What: "it was not undone: " + text, Next: "bourse rollback"})
		}
		out, err := withNote(metadata, note)
		var was, is map[string]json.RawMessage
		if wrong := json.Unmarshal(metadata, &was); (wrong != nil && len(metadata) > 0) != (err != nil) {
			t.Fatalf("%q: %v", metadata, err)
		}
		if err != nil {
			return
		}
		if err := json.Unmarshal(out, &is); err != nil {
			t.Fatal(err)
		}
		var said Note
		if raw, there := is[noteKey]; there {
			if err := json.Unmarshal(raw, &said); err != nil || len(said.Left)+said.More != len(note.Left) {
				t.Fatalf("%v: the note lists %d leftovers and %d more, of %d", err, len(said.Left), said.More, len(note.Left))
			}
			if len(out) > maxMetadata {
				t.Fatalf("%d bytes", len(out))
			}
		}
		delete(is, noteKey)
		delete(was, noteKey)
		if diff := cmp.Diff(spelledOf(t, was), spelledOf(t, is)); diff != "" {
			t.Fatalf("-was +is\n%s", diff)
		}
		again, err := withNote(out, note)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("noted again: %v\n%s\n%s", err, out, again)
		}
	})
}

// spelledOf returns members in a canonical form, for comparison.
func spelledOf(t *testing.T, members map[string]json.RawMessage) []string {
	t.Helper()
	var out []string
	for _, key := range slices.Sorted(maps.Keys(members)) {
		var b bytes.Buffer
		if err := json.Compact(&b, members[key]); err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%q: %s", key, b.Bytes()))
	}
	return out
}

// FuzzRow checks that rowOf does not panic, whatever the cells contain.
func FuzzRow(f *testing.F) {
	f.Add([]byte(`["148e21ea1d5301","gru-1","started","01JD3V7K7Y5C5ZQ7W1R2M3N4P6",0,3,null,"[]"]`))
	f.Add([]byte(`["148e21ea1d5301",null,7,true,1e99,-1]`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var cells []any
		if d.Decode(&cells) != nil {
			return
		}
		row := rowOf(cells)
		if text, ok := append(cells, nil)[0].(string); ok && row.Machine != bourse.MachineID(text) {
			t.Fatalf("%+v of %s", row, raw)
		}
	})
}

// TestTimesAreMonotonic checks that this package does not call functions that remove the monotonic clock reading from a
// time or return a time without one. Otherwise, setting the client's clock would disturb a run. Only the function
// holder may do so, because its time is only shown to the user.
func TestTimesAreMonotonic(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	lose := []string{"Unix", "UnixMilli", "UnixMicro", "UnixNano", "UTC", "Local", "In", "AddDate", "Date", "Parse", "ParseInLocation", "MarshalText", "MarshalJSON"}
	var found []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if s, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(lose, s.Sel.Name) && fn.Name.Name != "holder" {
						found = append(found, fn.Name.Name+" calls "+s.Sel.Name)
					}
				}
				return true
			})
		}
	}
	if len(found) > 0 {
		t.Errorf("%q", found)
	}
}
