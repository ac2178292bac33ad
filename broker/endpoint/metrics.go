package endpoint

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bourse-dev/bourse"
)

// Counts holds a broker's counters. It is safe for concurrent use and implements
// [prometheus.Collector].
type Counts struct {
	orders    *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	steps     *prometheus.HistogramVec
	refusals  map[bourse.RefusalReason]prometheus.Counter // one counter for each known reason, and one for all other reasons
	shadowed  *prometheus.CounterVec
	requests  *prometheus.CounterVec
	answered  *prometheus.HistogramVec
	open      *prometheus.GaugeVec
	collected []prometheus.Collector
}

// other replaces label values that this release does not know. Such values come from a server that runs another
// release, or from a malicious worker.
const other = "other"

// seconds contains the upper bounds of the latency buckets, which range from the duration of a refusal to that of an
// image pull.
var seconds = []float64{.0003, .001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 120}

// NewCounts returns counters that are all zero.
func NewCounts() *Counts {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bourse_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "bourse_" + name, Help: help, Buckets: seconds}, labels)
	}
	refusals := counter("order_refusals_total", "Number of refusals by workers, including those of orders that another worker filled.", "reason")
	c := &Counts{
		orders: counter("orders_total", "Number of orders by outcome. For refused orders, reason is the most frequent refusal, or the error's code.",
			"kind", "outcome", "reason"),
		duration: histogram("order_seconds", "Duration of orders in seconds.", "kind", "outcome"),
		steps:    histogram("order_step_seconds", "Duration of each step of filled orders in seconds; skipped steps are not counted.", "kind", "step"),
		refusals: map[bourse.RefusalReason]prometheus.Counter{other: refusals.WithLabelValues(other)},
		shadowed: counter("shadow_orders_total", "Number of orders that were compared with a shadow policy, by whether it agrees with the worker that was ranked first.", "agrees"),
		requests: counter("requests_total", "Number of completed requests. 429: too many requests; 503: temporarily unavailable.", "route", "status"),
		answered: histogram("request_seconds", "Duration of requests in seconds, including the whole stream.", "route"),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "bourse_requests_in_progress", Help: "Number of requests in progress, including open streams.",
		}, []string{"route"}),
	}
	for _, reason := range bourse.RefusalReasons() {
		c.refusals[reason] = refusals.WithLabelValues(string(reason))
	}
	c.collected = []prometheus.Collector{c.orders, c.duration, c.steps, refusals, c.shadowed, c.requests, c.answered, c.open}
	return c
}

// Watch adds gauges for the number of orders in progress and the number waiting for a turn. It calls turns whenever
// metrics are collected. Watch must be called before the first collection.
func (c *Counts) Watch(turns func() (inProgress, waiting int)) {
	c.collected = append(c.collected,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "bourse_orders_in_progress", Help: "Number of orders in progress.",
		}, func() float64 { n, _ := turns(); return float64(n) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "bourse_orders_waiting", Help: "Number of orders waiting for a turn; beyond the limit, orders are refused with 429.",
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

// Decided counts an order after it has been decided. fill is nil if the order was not filled.
func (c *Counts) Decided(order *bourse.Order, fill *bourse.Fill, d *bourse.Decision, err error) {
	kind, outcome := string(order.Kind()), string(d.Outcome)
	if fill != nil && fill.Repeated {
		outcome = "repeated" // an earlier request filled the order and was counted
	}
	c.orders.WithLabelValues(kind, outcome, c.count(d, err)).Inc()
	c.duration.WithLabelValues(kind, outcome).Observe(d.Times.Total.Seconds())
	compared := func(r bourse.Round) bool { return r.Shadow != nil && len(r.Ranked) > 1 }
	if i := slices.IndexFunc(d.Rounds, compared); i >= 0 { // as in market.Comparison, an order counts once
		c.shadowed.WithLabelValues(strconv.FormatBool(d.Rounds[i].Shadow.Gain == 0)).Inc()
	}
	if fill == nil || fill.Repeated {
		return
	}
	for _, s := range stepsOf(&d.Times) {
		if s.took > 0 {
			c.steps.WithLabelValues(kind, s.name).Observe(s.took.Seconds())
		}
	}
}

// count counts the refusals in a decision. It returns the most frequent reason if the order was refused for lack of
// capacity, the error's code if it was refused for another reason, and "" if it was not refused.
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
	default: // a malicious worker may send any code
		return other
	}
	return string(most)
}

// Began counts a request that has begun.
func (c *Counts) Began(route string) { c.open.WithLabelValues(route).Inc() }

// Ended counts a request that has ended. A status of 0 counts as 200.
func (c *Counts) Ended(route string, status int, took time.Duration) {
	if status == 0 {
		status = 200
	}
	c.open.WithLabelValues(route).Dec()
	c.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	c.answered.WithLabelValues(route).Observe(took.Seconds())
}
