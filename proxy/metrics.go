package proxy

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxApps is how many apps have series of their own.
const maxApps = 1000

// other stands for the apps beyond them, and for words that are not known.
const otherLabel = "other"

// seconds are the upper bounds of latencies, from a reply out of memory to a start
// that pulls an image.
var seconds = []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 120}

// reasons are why a request is tried again.
var reasons = []string{"use", "dial", "lost", "replay"}

// Counts is what a proxy has counted since its start. It is safe for concurrent
// use, and is a [prometheus.Collector].
type Counts struct {
	requests *prometheus.CounterVec
	answered *prometheus.HistogramVec
	open     *prometheus.GaugeVec
	repeated *prometheus.CounterVec
	wakes    *prometheus.CounterVec
	woke     prometheus.Histogram

	mu   sync.RWMutex
	apps map[string]bool // with series of their own
}

// NewCounts makes counts of nothing for a proxy of a region.
func NewCounts(region string) *Counts {
	in := prometheus.Labels{"region": region}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bourse_proxy_" + name, Help: help, ConstLabels: in}, labels)
	}
	return &Counts{
		requests: counter("requests_total", "Requests that ended, by the class of their status; 499 is a client that left.", "app", "status"),
		answered: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "bourse_proxy_request_seconds", Help: "How long requests took, streams until their end.", Buckets: seconds, ConstLabels: in,
		}, []string{"app"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "bourse_proxy_requests_in_progress", Help: "Requests that are being answered, streams and WebSockets included.", ConstLabels: in,
		}, []string{"app"}),
		repeated: counter("retries_total", "Attempts at another machine, by what failed before: its use, the connection, the reply; or a replay.", "app", "reason"),
		wakes:    counter("wakes_total", "Requests that waited for a machine to start, by whether it did.", "app", "outcome"),
		woke: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "bourse_proxy_wake_seconds", Help: "How long requests waited for a machine that started.", Buckets: seconds, ConstLabels: in,
		}),
		apps: map[string]bool{},
	}
}

// app returns an app's label.
func (c *Counts) appLabel(name string) string {
	c.mu.RLock()
	known, full := c.apps[name], len(c.apps) >= maxApps
	c.mu.RUnlock()
	switch {
	case known:
		return name
	case full:
		return otherLabel
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.apps[name] && len(c.apps) >= maxApps {
		return otherLabel
	}
	c.apps[name] = true
	return name
}

// Began implements Metrics, as do the others.
func (c *Counts) Began(app string) { c.open.WithLabelValues(c.appLabel(app)).Inc() }

// Ended counts a request that was begun.
func (c *Counts) Ended(app string, status int, took time.Duration) {
	app = c.appLabel(app)
	c.open.WithLabelValues(app).Dec()
	c.requests.WithLabelValues(app, statusClass(status)).Inc()
	c.answered.WithLabelValues(app).Observe(took.Seconds())
}

// Repeated counts an attempt after the first.
func (c *Counts) Repeated(app, why string) {
	if !slices.Contains(reasons, why) {
		why = otherLabel
	}
	c.repeated.WithLabelValues(c.appLabel(app), why).Inc()
}

// Woke counts a request that waited for a machine to start.
func (c *Counts) Woke(app string, ok bool, took time.Duration) {
	outcome := "failed"
	if ok {
		outcome = "started"
		c.woke.Observe(took.Seconds())
	}
	c.wakes.WithLabelValues(c.appLabel(app), outcome).Inc()
}

// class returns what is counted of a status: those that the proxy says itself are
// told apart.
func statusClass(status int) string {
	switch {
	case status == 499 || status >= 502 && status <= 504:
		return strconv.Itoa(status)
	case status >= 100 && status < 600:
		return strconv.Itoa(status/100) + "xx"
	}
	return otherLabel
}

func (c *Counts) all() []prometheus.Collector {
	return []prometheus.Collector{c.requests, c.answered, c.open, c.repeated, c.wakes, c.woke}
}

// Describe implements prometheus.Collector.
func (c *Counts) Describe(out chan<- *prometheus.Desc) {
	for _, each := range c.all() {
		each.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (c *Counts) Collect(out chan<- prometheus.Metric) {
	for _, each := range c.all() {
		each.Collect(out)
	}
}
