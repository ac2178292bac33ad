package workload

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

// TestCheckFields checks that the fields of a check that this package reads are exactly those that the table of
// fields lists as supported.
func TestCheckFields(t *testing.T) {
	t.Parallel()
	var read []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[CheckConfig]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "headers" {
			read = append(read, "headers[].name", "headers[].values")
			continue
		}
		read = append(read, name)
	}
	slices.Sort(read)
	for _, path := range []string{"config.checks.*", "config.services[].checks[]"} {
		f := bourse.FieldOf(path)
		if f == nil {
			t.Fatalf("the table has no line for %s", path)
		}
		named := strings.Fields(f.Members)
		if path != "config.checks.*" {
			named = append(named, "kind") // the table does not list kind for service checks
		}
		slices.Sort(named)
		if !slices.Equal(named, read) {
			t.Errorf("%s: the table has %v, but the package reads %v", path, named, read)
		}
	}
}
