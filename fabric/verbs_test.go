package fabric_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/fabric"
)

// verbNames returns the names of the variables that contain verbs, that is, all exported variables except errors.
func verbNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if vars, ok := d.(*ast.GenDecl); ok && vars.Tok == token.VAR {
				for _, spec := range vars.Specs {
					if name := spec.(*ast.ValueSpec).Names[0]; name.IsExported() && !strings.HasPrefix(name.Name, "Err") {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	if len(names) != len(fabric.Verbs()) {
		t.Errorf("%d variables are verbs, but the table contains %d", len(names), len(fabric.Verbs()))
	}
	return names
}

// TestEveryVerbIsServedAndAsked checks that a worker serves each verb and that another
// server uses it. Verbs used by the broker have a path, which docs/api.md must contain
// (TestEveryEndpointIsDocumented in package broker), and each call of the public API has a
// command (package cmd/bourse).
func TestEveryVerbIsServedAndAsked(t *testing.T) {
	served, asked := map[string]bool{}, map[string]bool{}
	uses := regexp.MustCompile(`\bfabric\.([A-Z]\w+)`)
	for _, dir := range []string{"worker", "broker", "proxy", "cmd/bourse", "fabric"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, use := range uses.FindAllStringSubmatch(string(text), -1) {
				if dir == "worker" {
					served[use[1]] = true
				} else {
					asked[use[1]] = true
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"OrderQuote", "OrderClaim", "OrderStream", "OrderCancel", "VolumeGrant"} { // used by a Trader or GrantingTrader
		asked[name] = true
	}
	for _, name := range verbNames(t) {
		if !served[name] {
			t.Errorf("no worker serves %s: add a handler in worker/api.go", name)
		}
		if !asked[name] {
			t.Errorf("no server uses %s: add a path in package broker", name)
		}
	}
}
