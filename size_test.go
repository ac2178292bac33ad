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
var larger = map[string]int{
	"broker.Broker": 136, "cli.shell": 141, "driver/container.Driver": 71, "fabric/nats.Link": 71, "store.Tx": 86, "view.View": 93,
	"view/gossip.Replicator": 76, "worker.Worker": 260,
	"broker": 5550, "cli": 9350, "store": 4850, "view": 7350, "view/gossip": 5250, "worker": 11450,

	"machinesapi.Client": 72, // a method for each call of the API
}

// TestSizes: no type and no package outgrows its reader. It logs the largest.
func TestSizes(t *testing.T) {
	for dir := range floors {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		lines, methods := 0, map[string]int{}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			lines += bytes.Count(text, []byte("\n"))
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
		check(t, dir, "lines", lines, maxLines)
		for _, name := range slices.Sorted(maps.Keys(methods)) {
			check(t, name, "methods", methods[name], maxMethods)
		}
	}
}

func check(t *testing.T, name, of string, n, limit int) {
	most, listed := larger[name]
	switch {
	case n > limit && !listed:
		t.Errorf("%s has %d %s, at most %d: take it apart", name, n, of, limit)
	case listed && n <= limit:
		t.Errorf("%s has %d %s, within the limit: it is no exception any more", name, n, of)
	case listed && n > most:
		t.Errorf("%s has %d %s, and had %d: it is to become smaller", name, n, of, most)
	case listed:
		t.Logf("%s: %d %s, at most %d", name, n, of, most)
	}
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
