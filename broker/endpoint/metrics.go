package endpoint

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bourse-dev/bourse"
)

// Counts is what a broker has counted since its start. It is safe for concurrent
// use, and is a [prometheus.Collector].
type Counts struct {
	orders    *prometheus.CounterVec
	took      *prometheus.HistogramVec
	steps     *prometheus.HistogramVec
	refusals  map[bourse.RefusalReason]prometheus.Counter // one for each that is known, and "other"
	requests  *prometheus.CounterVec
	answered  *prometheus.HistogramVec
	open      *prometheus.GaugeVec
	collected []prometheus.Collector
}

// other stands for what another release, or a worker that lies, calls by a word that
// this one does not know.
const other = "other"

// seconds are the upper bounds of latencies, from a refusal to the pull of an image.
var seconds = []float64{.0003, .001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 120}

// NewCounts makes counts of nothing.
func NewCounts() *Counts {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bourse_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "bourse_" + name, Help: help, Buckets: seconds}, labels)
	}
	refusals := counter("order_refusals_total", "Workers' refusals of orders, those of orders that others filled included.", "reason")
	c := &Counts{
		orders: counter("orders_total", "Orders by how they ended; of refused ones the reason is that of most workers, or the error's code.",
			"kind", "outcome", "reason"),
		took:     histogram("order_seconds", "How long orders took until their end.", "kind", "outcome"),
		steps:    histogram("order_step_seconds", "How long the steps of filled orders took; one that was left out does not count.", "kind", "step"),
		refusals: map[bourse.RefusalReason]prometheus.Counter{other: refusals.WithLabelValues(other)},
		requests: counter("requests_total", "Requests that were answered; 429 is too many, 503 not now.", "route", "status"),
		answered: histogram("request_seconds", "How long requests took, streams until their end.", "route"),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "bourse_requests_in_progress", Help: "Requests that are being answered; on routes that stream, the streams that are open.",
		}, []string{"route"}),
	}
	for _, reason := range bourse.RefusalReasons() {
		c.refusals[reason] = refusals.WithLabelValues(string(reason))
	}
	c.collected = []prometheus.Collector{c.orders, c.took, c.steps, refusals, c.requests, c.answered, c.open}
	return c
}

// Watch adds what is known elsewhere: turns returns how many orders are in
// progress, and how many wait for a turn. It is called before anything is
// collected.
func (c *Counts) Watch(turns func() (inProgress, waiting int)) {
	c.collected = append(c.collected,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "bourse_orders_in_progress", Help: "Orders that have begun and not ended.",
		}, func() float64 { n, _ := turns(); return float64(n) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "bourse_orders_waiting", Help: "Orders that wait for a turn; beyond the limit they get 429.",
		}, func() float64 { _, n := turns(); return float64(n) }),
	)
}

// Describe implements prometheus.Collector.
func (c *Counts) Describe(out chan<- *prometheus.Desc) {
	for _, each := range c.collected {
		each.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (c *Counts) Collect(out chan<- prometheus.Metric) {
	for _, each := range c.collected {
		each.Collect(out)
	}
}

// Decided counts an order that was decided. The fill is nil for one that was not
// filled.
func (c *Counts) Decided(order *bourse.Order, fill *bourse.Fill, d *bourse.Decision, err error) {
	kind, outcome := string(order.Kind()), string(d.Outcome)
	if fill != nil && fill.Again {
		outcome = "repeated" // it was filled and counted before
	}
	c.orders.WithLabelValues(kind, outcome, c.count(d, err)).Inc()
	c.took.WithLabelValues(kind, outcome).Observe(d.Times.Total.Seconds())
	if fill == nil || fill.Again {
		return
	}
	for _, s := range stepsOf(&d.Times) {
		if s.took > 0 {
			c.steps.WithLabelValues(kind, s.name).Observe(s.took.Seconds())
		}
	}
}

// count counts the refusals of a decision, and returns in a word why the order
// was refused: "" for one that was not.
func (c *Counts) count(d *bourse.Decision, err error) string {
	var by map[bourse.RefusalReason]int
	most := bourse.RefusalReason("")
	add := func(r *bourse.Refusal) {
		reason := r.Reason
		if c.refusals[reason] == nil {
			reason = other
		}
		c.refusals[reason].Inc()
		if by == nil {
			by = map[bourse.RefusalReason]int{}
		}
		if by[reason]++; by[reason] > by[most] {
			most = reason
		}
	}
	for i := range d.Rounds {
		round := &d.Rounds[i]
		for j := range round.Refusals {
			add(&round.Refusals[j])
		}
		for _, try := range round.Claims {
			if try.Refusal != nil {
				add(try.Refusal)
			}
		}
	}
	switch code := bourse.CodeOf(err); {
	case d.Outcome != bourse.OutcomeRefused:
		return ""
	case code == bourse.CodeInsufficient && most != "":
	case slices.Contains(bourse.Codes(), code):
		return string(code)
	default: // a worker may write anything
		return other
	}
	return string(most)
}

// Began counts a request of a route that is to be answered.
func (c *Counts) Began(route string) { c.open.WithLabelValues(route).Inc() }

// Ended counts a request that was answered; status 0 is 200.
func (c *Counts) Ended(route string, status int, took time.Duration) {
	if status == 0 {
		status = 200
	}
	c.open.WithLabelValues(route).Dec()
	c.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	c.answered.WithLabelValues(route).Observe(took.Seconds())
}
