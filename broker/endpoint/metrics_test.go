package endpoint_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
)

// series returns the exported lines of the metrics with the given names, without comments.
func series(t *testing.T, c *endpoint.Counts, names ...string) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if rec.Code != http.StatusOK {
		t.Fatal(rec.Body)
	}
	var out strings.Builder
	for line := range strings.Lines(rec.Body.String()) {
		name := line[:strings.IndexAny(line, "{ ")]
		if !strings.HasPrefix(line, "#") && (len(names) == 0 || slices.Contains(names, name)) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// refused returns the decision about an order that workers have refused for the given reasons.
func refused(reasons ...bourse.RefusalReason) *bourse.Decision {
	d := &bourse.Decision{Outcome: bourse.OutcomeRefused, Rounds: make([]bourse.Round, 1)}
	for _, reason := range reasons {
		d.Rounds[0].Refusals = append(d.Rounds[0].Refusals, bourse.Refusal{Reason: reason})
	}
	return d
}

// TestShadowedOrders checks that an order counts once, by the first ranking that was compared, and that
// an order with only one willing worker does not count.
func TestShadowedOrders(t *testing.T) {
	c := endpoint.NewCounts()
	round := func(workers int, gain float64) bourse.Round {
		return bourse.Round{Ranked: make([]bourse.Ranking, workers), Shadow: &bourse.Shadow{Gain: gain}}
	}
	for _, rounds := range [][]bourse.Round{{round(2, 0.1), round(2, 0)}, {round(1, 0), round(3, 0)}, {round(2, 0)}, {round(1, 0)}, {{Ranked: make([]bourse.Ranking, 2)}}} {
		c.Decided(&bourse.Order{}, nil, &bourse.Decision{Rounds: rounds}, nil)
	}
	want := "bourse_shadow_orders_total{agrees=\"false\"} 1\nbourse_shadow_orders_total{agrees=\"true\"} 2\n"
	if got := series(t, c, "bourse_shadow_orders_total"); got != want {
		t.Errorf("counted\n%swant\n%s", got, want)
	}
}

func TestDecided(t *testing.T) {
	c := endpoint.NewCounts()
	machine, task := &bourse.Order{}, &bourse.Order{Task: &bourse.TaskOrder{}}
	full := bourse.Errorf(bourse.CodeInsufficient, "full")
	filled := refused(bourse.RefusedImage) // one worker refuses the order, and another one fills it
	filled.Outcome, filled.Times = bourse.OutcomeFilled, bourse.Times{Quote: time.Millisecond, Claim: 20 * time.Millisecond, Total: 21 * time.Millisecond}
	c.Decided(machine, &bourse.Fill{}, filled, nil)
	c.Decided(machine, &bourse.Fill{Repeated: true}, &bourse.Decision{Outcome: bourse.OutcomeFilled}, nil)
	c.Decided(machine, nil, refused(bourse.RefusedImage, bourse.RefusedResource, bourse.RefusedResource), full)
	c.Decided(machine, nil, refused(), full)
	c.Decided(machine, nil, refused(bourse.RefusedNoAnswer), bourse.Errorf(bourse.CodeUnavailable, "no one answers"))
	c.Decided(task, nil, &bourse.Decision{Outcome: bourse.OutcomeTimeout}, bourse.Errorf(bourse.CodeTimeout, "too late"))
	want := `bourse_orders_total{kind="machine",outcome="filled",reason=""} 1
bourse_orders_total{kind="machine",outcome="refused",reason="insufficient_capacity"} 1
bourse_orders_total{kind="machine",outcome="refused",reason="resource"} 1
bourse_orders_total{kind="machine",outcome="refused",reason="unavailable"} 1
bourse_orders_total{kind="machine",outcome="repeated",reason=""} 1
bourse_orders_total{kind="task",outcome="timeout",reason=""} 1
`
	if got := series(t, c, "bourse_orders_total"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	want = `bourse_order_step_seconds_count{kind="machine",step="claim"} 1
bourse_order_step_seconds_count{kind="machine",step="quote"} 1
`
	if got := series(t, c, "bourse_order_step_seconds_count"); got != want {
		t.Errorf("got\n%swant\n%s: rank and start were left out", got, want)
	}
	for _, line := range []string{`{reason="image"} 2`, `{reason="resource"} 2`, `{reason="no_answer"} 1`, `{reason="name"} 0`} {
		if got := series(t, c, "bourse_order_refusals_total"); !strings.Contains(got, line) {
			t.Errorf("refusals lack %s:\n%s", line, got)
		}
	}
}

func TestServerTiming(t *testing.T) {
	times := bourse.Times{Quote: 1500 * time.Microsecond, Claim: 20 * time.Millisecond, Start: 3 * time.Millisecond, Total: 25 * time.Millisecond}
	const want = "quote;dur=1.500, rank;dur=0.000, claim;dur=20.000, start;dur=3.000, total;dur=25.000"
	if got := endpoint.ServerTiming(times); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestLabelsAreBounded checks that the number of series is bounded, whatever values workers send.
func TestLabelsAreBounded(t *testing.T) {
	c := endpoint.NewCounts()
	before := strings.Count(series(t, c), "\n")
	for i := range 1000 {
		lie := bourse.RefusalReason(fmt.Sprintf("lie-%d\n", i))
		c.Decided(&bourse.Order{}, nil, refused(lie), bourse.Errorf(bourse.CodeInsufficient, "no"))
		c.Decided(&bourse.Order{}, nil, refused(), bourse.Errorf(bourse.Code(lie), "no"))
	}
	if more := strings.Count(series(t, c), "\n") - before; more > 20 { // one series for orders, and the buckets of their duration
		t.Errorf("1000 unknown values create %d series:\n%s", more, series(t, c))
	}
}

// TestReasonsAreListed checks that every reason for a refusal has its own label value.
func TestReasonsAreListed(t *testing.T) {
	text, err := os.ReadFile("../../order.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`Refused\w+ +RefusalReason = "(\w+)"`).FindAllStringSubmatch(string(text), -1)
	if len(found) != len(bourse.RefusalReasons()) {
		t.Errorf("%d reasons are declared, %d listed", len(found), len(bourse.RefusalReasons()))
	}
	for _, m := range found {
		if !slices.Contains(bourse.RefusalReasons(), bourse.RefusalReason(m[1])) {
			t.Errorf("bourse.RefusalReasons lacks %s", m[1])
		}
	}
}

// TestCountsConcurrently checks that concurrent requests and orders are counted exactly once, even
// while metrics are read.
func TestCountsConcurrently(t *testing.T) {
	c := endpoint.NewCounts()
	c.Watch(func() (int, int) { return 1, 2 })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	const each, workers = 200, 8
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range each {
				c.Began("GET /x")
				c.Decided(&bourse.Order{}, nil, refused(bourse.RefusedResource), bourse.Errorf(bourse.CodeInsufficient, "full"))
				c.Ended("GET /x", 200*(i%2), time.Millisecond)
				if i%50 == 0 {
					if _, err := registry.Gather(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	want := `bourse_orders_waiting 2
bourse_requests_in_progress{route="GET /x"} 0
bourse_requests_total{route="GET /x",status="200"} 1600
`
	if got := series(t, c, "bourse_requests_total", "bourse_requests_in_progress", "bourse_orders_waiting"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func BenchmarkDecided(b *testing.B) {
	c := endpoint.NewCounts()
	d := &bourse.Decision{Outcome: bourse.OutcomeFilled, Times: bourse.Times{Quote: 1, Rank: 1, Claim: 1, Start: 1, Total: 4}}
	b.ReportAllocs()
	for b.Loop() {
		c.Decided(&bourse.Order{}, &bourse.Fill{}, d, nil)
	}
}
