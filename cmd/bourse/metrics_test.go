package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/internal/metrics"
	"github.com/bourse-dev/bourse/worker"
)

// described parses the text of a prometheus.Desc, because its fields are not exported.
var described = regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: "(.*)", unit: "\w*", constLabels: \{\}, variableLabels: \{([\w,]*)\}\}$`)

// rows returns the rows of the table for a collector's metrics.
func rows(t *testing.T, servers string, c prometheus.Collector) []string {
	t.Helper()
	all := make(chan *prometheus.Desc, 100)
	c.Describe(all)
	close(all)
	var out []string
	for d := range all {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("cannot parse %s", d)
		}
		labels := ""
		if m[3] != "" {
			labels = "`" + strings.ReplaceAll(m[3], ",", "`, `") + "`"
		}
		out = append(out, fmt.Sprintf("| `%s` | %s | %s | %s |\n", m[1], labels, servers, m[2]))
	}
	return out
}

// TestEveryMetricIsDocumented checks that the table in docs/operations.md contains
// exactly the existing metrics, with their labels and help. -update rewrites the table.
func TestEveryMetricIsDocumented(t *testing.T) {
	counts := endpoint.NewCounts()
	counts.Watch(nil)
	table := slices.Concat(rows(t, "all", metrics.New(metrics.Source{})), rows(t, "brokers", counts), rows(t, "workers", (*worker.Worker)(nil).Metrics()))
	slices.Sort(table)
	want := "| metric | labels | of | |\n|---|---|---|---|\n" + strings.Join(table, "")
	const file, begin, end = "../../docs/operations.md", "<!-- metrics -->\n", "<!-- /metrics -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, ended := strings.Cut(rest, end)
	switch {
	case !ok || !ended:
		t.Fatalf("%s has no table between %s and %s", file, strings.TrimSpace(begin), strings.TrimSpace(end))
	case got == want:
	case *clitest.Update:
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table of metrics in %s is out of date; go test -run %s -update ./cmd/bourse writes:\n%s", file, t.Name(), want)
	}
}
