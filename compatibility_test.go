package bourse_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

const compatibility = "docs/compatibility.md"

var update = flag.Bool("update", false, "write docs/compatibility.md instead of comparing with it")

// TestCompatibility checks that the tables of fields, states and calls in docs/compatibility.md
// match the program. To update them, run go test -run TestCompatibility -update .
func TestCompatibility(t *testing.T) {
	raw, err := os.ReadFile(compatibility)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for name, want := range map[string]string{"fields": fieldsTable(), "states": statesDiagram(), "calls": callsTable()} {
		begin, end := "<!-- "+name+": written by go test -run TestCompatibility -update . -->\n", "<!-- end of "+name+" -->\n"
		before, rest, begins := strings.Cut(text, begin)
		got, after, ends := strings.Cut(rest, end)
		if !begins || !ends {
			t.Fatalf("%s does not have the lines %q and %q", compatibility, begin, end)
		}
		if diff := cmp.Diff(want, got); diff != "" && !*update {
			t.Errorf("the table %[2]s in %[1]s is out of date (-want +got): run go test -run TestCompatibility -update .\n%[3]s", compatibility, name, diff)
		}
		text = before + begin + want + end + after
	}
	if *update {
		if err := os.WriteFile(compatibility, []byte(text), 0o644); err != nil { //nolint:gosec // a file of the source tree
			t.Fatal(err)
		}
	}
}

// statesDiagram returns a diagram of a machine's states and transitions.
func statesDiagram() string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, from := range bourse.States() {
		for _, to := range bourse.States() {
			if from.CanBecome(to) {
				fmt.Fprintf(&b, "    %s --> %s\n", from, to)
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// callsTable returns a table with the answer to each call in each state, and with the texts of
// refusals.
func callsTable() string {
	var b strings.Builder
	b.WriteString("| |")
	for _, call := range bourse.Calls() {
		fmt.Fprintf(&b, " %s |", call)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(bourse.Calls())) + "\n")
	texts := map[string]bool{}
	for _, state := range bourse.States() {
		fmt.Fprintf(&b, "| %s |", state)
		for _, call := range bourse.Calls() {
			answer, text := call.On(state)
			texts[strings.ReplaceAll(text, string(state), "STATE")] = text != ""
			fmt.Fprintf(&b, " %s |", map[bourse.CallResult]string{bourse.CallAllowed: "go", bourse.CallNoChange: "already", bourse.CallNotFound: "404", bourse.CallRefused: "412"}[answer])
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		if text != "" {
			fmt.Fprintf(&b, "- 412 `%s`\n", text)
		}
	}
	return b.String()
}

// fieldsTable returns a table with one row for each group of members that are handled in the same
// way.
func fieldsTable() string {
	var b strings.Builder
	b.WriteString("| member | `host` | `pull` | other images | why |\n|---|---|---|---|---|\n")
	var paths []string
	fields := bourse.Fields()
	for i, f := range fields {
		path := "`" + f.Path + "`"
		for name := range strings.FieldsSeq(f.Members) {
			path += " `." + name + "`"
		}
		paths = append(paths, path)
		if i+1 < len(fields) && alike(f, fields[i+1]) {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", strings.Join(paths, ", "), f.Host, f.Pull, f.Image, f.Reason)
		paths = nil
	}
	return b.String()
}

func alike(a, b bourse.Field) bool {
	return a.Host == b.Host && a.Pull == b.Pull && a.Image == b.Image && a.Reason == b.Reason
}
