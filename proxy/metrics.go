package proxy

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxApps is the maximum number of apps that have their own time series.
const maxApps = 1000

// otherLabel is the label value for apps without their own time series, and for unknown values.
const otherLabel = "other"

// seconds contains the upper bounds of the latency buckets. The lowest buckets are for replies from memory, and the
// highest ones are for starts that pull an image.
var seconds = []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 120}

// reasons contains the label values that describe why a request was sent again.
var reasons = []string{"use", "dial", "lost", "order", "replay"}

// Counts implements [Metrics] and [prometheus.Collector]. It is safe for concurrent use.
type Counts struct {
	requests *prometheus.CounterVec
	answered *prometheus.HistogramVec
	open     *prometheus.GaugeVec
	repeated *prometheus.CounterVec
	wakes    *prometheus.CounterVec
	woke     prometheus.Histogram

	mu   sync.RWMutex
	apps map[string]bool // apps that have their own time series
}

// NewCounts returns the counters of a proxy in the given region.
func NewCounts(region string) *Counts {
	in := prometheus.Labels{"region": region}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bourse_proxy_" + name, Help: help, ConstLabels: in}, labels)
	}
	return &Counts{
		requests: counter("requests_total", "Number of completed requests by status class. 499: the client disconnected before the reply.", "app", "status"),
		answered: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "bourse_proxy_request_seconds", Help: "Duration of requests in seconds, including the whole body or stream.", Buckets: seconds, ConstLabels: in,
		}, []string{"app"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "bourse_proxy_requests_in_progress", Help: "Number of requests in progress, including streams and WebSockets.", ConstLabels: in,
		}, []string{"app"}),
		repeated: counter("retries_total", "Number of attempts after the first, by reason: use (the machine did not become ready), dial (the connection failed), lost (the connection broke before the reply), order (the host was full, so a machine was ordered on another one), replay.", "app", "reason"),
		wakes:    counter("wakes_total", "Number of requests that waited for a machine to start, by outcome (started or failed).", "app", "outcome"),
		woke: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "bourse_proxy_wake_seconds", Help: "Time that requests waited for successful machine starts, in seconds.", Buckets: seconds, ConstLabels: in,
		}),
		apps: map[string]bool{},
	}
}

// appLabel returns the label value for an app: its name if it has its own time series, and
// otherwise otherLabel.
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

// RequestStarted implements Metrics.
func (c *Counts) RequestStarted(app string) { c.open.WithLabelValues(c.appLabel(app)).Inc() }

// RequestEnded implements Metrics.
func (c *Counts) RequestEnded(app string, status int, took time.Duration) {
	app = c.appLabel(app)
	c.open.WithLabelValues(app).Dec()
	c.requests.WithLabelValues(app, statusClass(status)).Inc()
	c.answered.WithLabelValues(app).Observe(took.Seconds())
}

// Repeated implements Metrics.
func (c *Counts) Repeated(app, why string) {
	if !slices.Contains(reasons, why) {
		why = otherLabel
	}
	c.repeated.WithLabelValues(c.appLabel(app), why).Inc()
}

// MachineWoken implements Metrics.
func (c *Counts) MachineWoken(app string, ok bool, took time.Duration) {
	outcome := "failed"
	if ok {
		outcome = "started"
		c.woke.Observe(took.Seconds())
	}
	c.wakes.WithLabelValues(c.appLabel(app), outcome).Inc()
}

// statusClass returns the label value for a status. The statuses that the proxy itself uses for failures (499, and 502
// to 504) have their own values. All others are grouped into classes, such as "2xx".
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
