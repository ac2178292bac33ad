package worker

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
)

// pathMetrics serves the worker's metrics as Prometheus reads them.
const pathMetrics = "GET /worker/metrics"

const (
	metricsTimeout = 5 * time.Second // of one reading of all machines
	metricsAtOnce  = 4               // machines asked for their usage at the same time
)

// metrics describes what a worker tells of itself. The labels app and machine
// are bounded by what one host can run; all others by their kind.
type metrics struct {
	machines, ledgerTotal, ledgerUsed, load *prometheus.Desc
	starts, pulls, pullBytes, pullSeconds   *prometheus.Desc
	tasks                                   *prometheus.Desc
	cpu, throttled, memory, pids            *prometheus.Desc
}

func newMetrics() metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("bourse_worker_"+name, help, labels, nil)
	}
	return metrics{
		machines:    desc("machines", "Machines by state; destroyed ones do not count.", "state"),
		ledgerTotal: desc("ledger_total", "Capacity times overcommit, in the resource's own unit.", "resource"),
		ledgerUsed:  desc("ledger_used", "What machines and volumes take.", "resource"),
		load:        desc("load", "Runnable tasks per core, averaged over a minute."),
		starts:      desc("start_seconds", "How long the starting of machines took on the host, by the part that fetched no image."),
		pulls:       desc("pulls_total", "Images pulled for machines."),
		pullBytes:   desc("pull_bytes_total", "Compressed bytes of the images pulled for machines."),
		pullSeconds: desc("pull_seconds_total", "Time that machines have waited for their images."),
		tasks:       desc("tasks_total", "Tasks by how they ended.", "end"),
		cpu:         desc("machine_cpu_seconds_total", "Processor time used since the machine's start.", "app", "machine"),
		throttled:   desc("machine_throttled_seconds_total", "Time that its quota kept the machine waiting.", "app", "machine"),
		memory:      desc("machine_memory_bytes", "Memory in use, without droppable page cache.", "app", "machine"),
		pids:        desc("machine_pids", "Processes and threads.", "app", "machine"),
	}
}

// collector reads a worker's metrics when they are asked for; nothing is kept
// in between but counts.
type collector struct {
	w *Worker
	metrics
}

// Describe implements prometheus.Collector. The collector is unchecked: what
// there is to tell depends on the machines.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	facts, err := c.w.Facts()
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.machines, err)
		return
	}
	for _, state := range bourse.States() {
		if state != bourse.StateDestroyed {
			gauge(c.machines, float64(facts.Machines[state]), string(state))
		}
	}
	for _, a := range facts.Accounts {
		gauge(c.ledgerTotal, float64(a.Total), string(a.Resource))
		gauge(c.ledgerUsed, float64(a.Used), string(a.Resource))
	}
	gauge(c.load, facts.Load)
	n := &c.w.counts
	count, buckets := n.latencies()
	out <- prometheus.MustNewConstHistogram(c.starts, count, time.Duration(n.startTime.Load()).Seconds(), buckets)
	counter(c.pulls, float64(n.pulls.Load()))
	counter(c.pullBytes, float64(n.pullBytes.Load()))
	counter(c.pullSeconds, time.Duration(n.pullTime.Load()).Seconds())
	for i, end := range taskEnds {
		counter(c.tasks, float64(n.tasks[i].Load()), string(end))
	}
	for _, u := range c.w.usageOfAll() {
		app, id := string(u.machine.App), string(u.machine.ID)
		for d, v := range map[*prometheus.Desc]time.Duration{c.cpu: u.CPU, c.throttled: u.Throttled} {
			if v >= 0 {
				counter(d, v.Seconds(), app, id)
			}
		}
		for d, v := range map[*prometheus.Desc]int64{c.memory: u.Memory, c.pids: u.PIDs} {
			if v >= 0 {
				gauge(d, float64(v), app, id)
			}
		}
	}
}

type machineUsage struct {
	machine bourse.Machine
	driver.Usage
}

// usageOfAll asks for the usage of every running machine. One that does not
// answer in time, or has just ended, is left out.
func (w *Worker) usageOfAll() []machineUsage {
	ctx, cancel := context.WithTimeout(w.life, metricsTimeout)
	defer cancel()
	var running []bourse.Machine
	err := w.store.View(func(tx *store.Tx) error {
		for m, err := range tx.Machines() {
			if err != nil {
				return err
			}
			if m.State == bourse.StateStarted {
				running = append(running, m)
			}
		}
		return nil
	})
	if err != nil {
		w.log.Warn("read the machines for metrics", "err", err)
	}
	var mu sync.Mutex
	var out []machineUsage
	var group errgroup.Group
	group.SetLimit(metricsAtOnce)
	for _, m := range running {
		group.Go(func() error {
			if used, _, err := w.sample(ctx, &m); err == nil {
				mu.Lock()
				out = append(out, machineUsage{m, used})
				mu.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // none fails
	return out
}

// handleMetrics serves metrics. Their registry is made when the first reader
// comes: most workers that run on a laptop have none.
func (w *Worker) handleMetrics(mux *http.ServeMux) {
	handler := sync.OnceValue(func() http.Handler {
		registry := prometheus.NewRegistry()
		registry.MustRegister(&collector{w, newMetrics()})
		return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2, ErrorHandling: promhttp.ContinueOnError})
	})
	mux.HandleFunc(pathMetrics, func(rw http.ResponseWriter, r *http.Request) { handler().ServeHTTP(rw, r) })
}
