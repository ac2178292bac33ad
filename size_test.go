package bourse_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Limits of what a reader can hold in mind: a type's methods, and a package's
// lines without its tests.
const (
	maxMethods = 60
	maxLines   = 4000
)

// larger are the types and packages beyond the limits, with what they have at
// most. A number here only ever becomes smaller; at its limit an entry goes.
var larger = map[string]int{}

// TestSizes: no type and no package outgrows its reader. It logs the largest.
func TestSizes(t *testing.T) {
	lines, methods := map[string]int{}, map[string]int{}
	for dir := range floors {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			lines[dir] += bytes.Count(text, []byte("\n"))
			f, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
					methods[dir+"."+receiver(fn.Recv.List[0].Type)]++
				}
			}
		}
	}
	check(t, "lines", lines, maxLines)
	check(t, "methods", methods, maxMethods)
}

func check(t *testing.T, of string, sizes map[string]int, limit int) {
	total := 0
	names := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int { return sizes[b] - sizes[a] })
	for i, name := range names {
		n := sizes[name]
		most, listed := larger[name]
		switch {
		case n > limit && !listed:
			t.Errorf("%s has %d %s, at most %d: take it apart", name, n, of, limit)
		case listed && n <= limit:
			t.Errorf("%s has %d %s, within the limit: it is no exception any more", name, n, of)
		case listed && n > most:
			t.Errorf("%s has %d %s, and had %d: it is to become smaller", name, n, of, most)
		}
		if i < 8 {
			t.Logf("%6d %s: %s", n, of, name)
		}
		total += n
	}
	t.Logf("%6d %s in all, without tests", total, of)
}

func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return "?"
}
