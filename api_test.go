package bourse_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/api.txt instead of comparing with it")

// TestAPI: what these packages export changes only together with its list in
// testdata/api.txt, so that every change shows it. go test -run TestAPI -update .
// writes the list.
func TestAPI(t *testing.T) {
	const file = "testdata/api.txt"
	var got strings.Builder
	for _, dir := range []string{".", "fabric", "machinesapi"} {
		got.WriteString("package " + strings.Replace(dir, ".", "bourse", 1) + "\n\n" + exported(t, dir) + "\n")
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil { //nolint:gosec // a file of the source tree
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("something else is exported (-listed +now): is it meant? Then go test -run TestAPI -update .\n%s", diff)
	}
}

// exported returns the exported declarations of a package, sorted, without
// comments, bodies and unexported fields.
func exported(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(f)
		for _, d := range f.Decls {
			all = append(all, declared(t, set, d)...)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "\n") + "\n"
}

// declared returns a line or a block for each thing that d declares.
func declared(t *testing.T, set *token.FileSet, d ast.Decl) []string {
	text := func(node any) string {
		var b bytes.Buffer
		if err := printer.Fprint(&b, set, node); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		d.Body, d.Doc = nil, nil
		return []string{text(d)}
	case *ast.GenDecl:
		var all []string
		for _, s := range d.Specs {
			if d.Tok != token.IMPORT {
				all = append(all, d.Tok.String()+" "+text(s))
			}
		}
		return all
	default:
		return nil
	}
}
