package worker

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/machines"
)

const (
	metricsTimeout     = 5 * time.Second // time limit for reading all machines' usage
	metricsConcurrency = 4               // number of machines whose usage is read at the same time
)

// Metrics returns a collector for the worker's metrics. If w is nil, only Describe may be called on
// the collector.
func (w *Worker) Metrics() prometheus.Collector { return &collector{w, describe()} }

// descriptions contains the Prometheus descriptions of a worker's metrics. The labels app and
// machine have at most one value for each machine on the host, and all other labels have a fixed
// set of values.
type descriptions struct {
	machines, exits, restarts, runs       *prometheus.Desc
	capacity, used, load                  *prometheus.Desc
	volumes, volumeBytes, snapshotBytes   *prometheus.Desc
	storeFaults, storeFull                *prometheus.Desc
	starts, pulls, pullBytes, pullSeconds *prometheus.Desc
	tasks                                 *prometheus.Desc
	cpu, throttled, memory, pids          *prometheus.Desc
}

func describe() descriptions {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("bourse_worker_"+name, help, labels, nil)
	}
	return descriptions{
		machines:      desc("machines", "Number of machines by state, excluding destroyed ones.", "state"),
		exits:         desc("machine_exits_total", "Number of exits of machines' programs. stopped: a stop was requested; lost: the exit code is unknown.", "end"),
		restarts:      desc("machine_restarts_total", "Number of restarts by machines' restart policies."),
		runs:          desc("runs", "Number of unfinished runs by status; stuck runs require an operator (bourse worker runs).", "status"),
		capacity:      desc("ledger_capacity", "Capacity multiplied by the overcommit factor; cpu is in thousandths of a core, memory and disk are in MiB.", "resource"),
		used:          desc("ledger_used", "Part of the capacity that is allocated to machines, volumes and reservations, in the units of the capacity.", "resource"),
		load:          desc("load", "Number of runnable tasks per core, averaged over one minute."),
		volumes:       desc("volumes", "Number of volumes by state, excluding destroyed ones.", "state"),
		volumeBytes:   desc("volume_bytes", "Total nominal size of the volumes in bytes, excluding destroyed ones."),
		snapshotBytes: desc("snapshot_bytes", "Disk space used by snapshots in bytes, including those of destroyed volumes."),
		storeFaults:   desc("store_faults_total", "Number of commits and checkpoints of the worker's store that failed because of the disk."),
		storeFull:     desc("store_full", "1 if the disk with the worker's store is full and orders are therefore refused; otherwise 0."),
		starts:        desc("start_seconds", "Duration of machine starts on the host in seconds, excluding image pulls."),
		pulls:         desc("pulls_total", "Number of images pulled for machines."),
		pullBytes:     desc("pull_bytes_total", "Total compressed size of the images pulled for machines, in bytes."),
		pullSeconds:   desc("pull_seconds_total", "Total duration of image pulls for machines, in seconds."),
		tasks:         desc("tasks_total", "Number of completed tasks by outcome.", "end"),
		cpu:           desc("machine_cpu_seconds_total", "CPU time used since the machine's start, in seconds.", "app", "machine"),
		throttled:     desc("machine_throttled_seconds_total", "Time for which the machine was throttled by its CPU quota, in seconds.", "app", "machine"),
		memory:        desc("machine_memory_bytes", "Memory in use in bytes, excluding reclaimable page cache.", "app", "machine"),
		pids:          desc("machine_pids", "Number of processes and threads.", "app", "machine"),
	}
}

// collector reads a worker's metrics each time they are requested. It does not store them.
type collector struct {
	w *Worker
	descriptions
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.machines, c.exits, c.restarts, c.runs, c.capacity, c.used, c.load, c.volumes, c.volumeBytes, c.snapshotBytes,
		c.storeFaults, c.storeFull, c.starts, c.pulls, c.pullBytes, c.pullSeconds, c.tasks, c.cpu, c.throttled, c.memory, c.pids,
	} {
		out <- d
	}
}

// scrape is the channel to which a collector sends its metrics.
type scrape chan<- prometheus.Metric

func (out scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (out scrape) counter(d *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	out := scrape(to)
	c.collectRecords(out)
	c.collectCounts(out)
	for _, u := range c.w.usageOfAll() {
		app, id := string(u.machine.App), string(u.machine.ID)
		for d, v := range map[*prometheus.Desc]time.Duration{c.cpu: u.CPU, c.throttled: u.Throttled} {
			if v >= 0 {
				out.counter(d, v.Seconds(), app, id)
			}
		}
		for d, v := range map[*prometheus.Desc]int64{c.memory: u.Memory, c.pids: u.PIDs} {
			if v >= 0 {
				out.gauge(d, float64(v), app, id)
			}
		}
	}
}

// collectRecords collects metrics from the store.
func (c *collector) collectRecords(out scrape) {
	facts, err := c.w.Facts()
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.machines, err)
		return
	}
	for _, state := range bourse.States() {
		if state != bourse.StateDestroyed {
			out.gauge(c.machines, float64(facts.Machines[state]), string(state))
		}
	}
	for _, a := range facts.Accounts {
		out.gauge(c.capacity, float64(a.Total), string(a.Resource))
		out.gauge(c.used, float64(a.Used), string(a.Resource))
	}
	out.gauge(c.load, facts.Load)
	runs := map[fsm.Status]int{fsm.Stuck: 0, fsm.Parked: 0, fsm.Queued: 0, fsm.Delayed: 0, fsm.Running: 0}
	for _, r := range c.w.engine.Runs() {
		if !r.Status.Ended() {
			runs[r.Status]++
		}
	}
	for status, n := range runs {
		out.gauge(c.runs, float64(n), string(status))
	}
	if err := c.collectVolumes(out); err != nil {
		out <- prometheus.NewInvalidMetric(c.volumes, err)
	}
}

func (c *collector) collectVolumes(out scrape) error {
	states := map[bourse.VolumeState]int{bourse.VolumeCreated: 0, bourse.VolumeFailed: 0}
	var gigabytes, snapshots int64
	err := c.w.store.View(func(tx *store.Tx) error {
		for v, err := range tx.Volumes() {
			if err != nil {
				return err
			}
			for i := range v.Snapshots {
				snapshots += v.Snapshots[i].Bytes
			}
			if v.State != bourse.VolumeDestroyed {
				states[v.State]++
				gigabytes += v.Spec.SizeGB
			}
		}
		return nil
	})
	for state, n := range states {
		out.gauge(c.volumes, float64(n), string(state))
	}
	out.gauge(c.volumeBytes, float64(gigabytes)*(1<<30))
	out.gauge(c.snapshotBytes, float64(snapshots))
	return err
}

// collectCounts collects the counters, which start at 0 when the daemon starts.
func (c *collector) collectCounts(out scrape) {
	n := &c.w.state.Counts
	exits, restarts := n.Exits()
	for end, n := range exits {
		out.counter(c.exits, float64(n), end)
	}
	out.counter(c.restarts, float64(restarts))
	out.counter(c.storeFaults, float64(c.w.store.Faults()))
	full := 0.0
	if c.w.store.SpaceError() != nil {
		full = 1
	}
	out.gauge(c.storeFull, full)
	starts, took, within := n.Starts()
	out <- prometheus.MustNewConstHistogram(c.starts, starts, took.Seconds(), within)
	pulls, bytes, took := n.Pulls()
	out.counter(c.pulls, float64(pulls))
	out.counter(c.pullBytes, float64(bytes))
	out.counter(c.pullSeconds, took.Seconds())
	for end, n := range n.Tasks() {
		out.counter(c.tasks, float64(n), string(end))
	}
}

type machineUsage struct {
	machine bourse.Machine
	driver.Usage
}

// usageOfAll returns the usage of all running machines. It leaves out machines that have just
// stopped, and those whose usage cannot be read in time.
func (w *Worker) usageOfAll() []machineUsage {
	ctx, cancel := context.WithTimeout(w.state.Context(), metricsTimeout)
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
		w.log.Warn("read machines for metrics failed", "err", err)
	}
	var mu sync.Mutex
	var out []machineUsage
	var group errgroup.Group
	group.SetLimit(metricsConcurrency)
	for _, m := range running {
		group.Go(func() error {
			d, err := w.machines.DriverOf(&m)
			if err != nil {
				return nil //nolint:nilerr // leave this machine out
			}
			if used, err := d.Usage(ctx, machines.TaskOf(&m)); err == nil {
				mu.Lock()
				out = append(out, machineUsage{m, used})
				mu.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // the group's functions never return an error
	return out
}
