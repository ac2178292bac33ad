package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
)

// Source provides the values of a server's metrics. Its functions are called at each
// scrape.
type Source struct {
	Self    bourse.Member
	Version string
	Members func() []bourse.Member // reachable members, including this server
	Absent  func() int             // number of unreachable workers; nil if unknown
	View    func() view.Health
	Expires func() time.Time // expiry of the server's certificate; nil if it has none
}

// Server is a [prometheus.Collector] for the metrics that servers of all roles report.
type Server struct {
	source Source

	build, members, absent, expires                   *prometheus.Desc
	queue, queueBytes, dropped, quarantine, lag, size *prometheus.Desc
	broken                                            *prometheus.Desc
}

// New returns a server's metrics. If you call only Describe, source may be the zero value.
func New(source Source) *Server {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("bourse_"+name, help, labels, nil)
	}
	return &Server{
		source:     source,
		build:      desc("build_info", "Always 1; the labels contain the server's release, role and region.", "version", "role", "region"),
		members:    desc("members", "Number of reachable members, including this server.", "role", "state"),
		absent:     desc("workers_absent", "Number of unreachable workers."),
		expires:    desc("certificate_expiry_timestamp_seconds", "Unix time at which the server's certificate expires."),
		queue:      desc("view_queue_transactions", "Number of transactions from other members that are waiting to be applied to this server's view."),
		queueBytes: desc("view_queue_bytes", "Size in bytes of the transactions that are waiting to be applied to this server's view."),
		dropped:    desc("view_dropped_total", "Number of transactions dropped because the queue was full; they are fetched again."),
		quarantine: desc("view_quarantined_rows", "Number of rows from other members that could not be applied; bourse view health shows the reasons."),
		lag:        desc("view_lag_seconds", "Largest lag of this server's view behind another member, in seconds; 0 if no transactions are missing."),
		size:       desc("view_file_bytes", "Size of the view's file in bytes, including its write-ahead log."),
		broken:     desc("view_broken", "1 if the view's file cannot be written; otherwise 0."),
	}
}

// Describe implements [prometheus.Collector].
func (s *Server) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		s.build, s.members, s.absent, s.expires, s.queue, s.queueBytes, s.dropped, s.quarantine, s.lag, s.size, s.broken,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (s *Server) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	self := &s.source.Self
	gauge(s.build, 1, s.source.Version, string(self.Role), string(self.Region))
	for in, n := range count(s.source.Members()) {
		gauge(s.members, float64(n), string(in.role), in.state)
	}
	if s.source.Absent != nil {
		gauge(s.absent, float64(s.source.Absent()))
	}
	if s.source.Expires != nil {
		gauge(s.expires, float64(s.source.Expires().Unix()))
	}
	h := s.source.View()
	gauge(s.queue, float64(h.Queue.Length))
	gauge(s.queueBytes, float64(h.Queue.Bytes))
	out <- prometheus.MustNewConstMetric(s.dropped, prometheus.CounterValue, float64(h.Queue.Dropped))
	gauge(s.quarantine, float64(h.Quarantine.Count))
	gauge(s.size, float64(h.FileBytes))
	lag, broken := time.Duration(0), 0.0
	for _, stream := range h.Streams {
		if stream.Gaps > 0 {
			lag = max(lag, stream.Lag)
		}
	}
	if h.Error != "" {
		broken = 1
	}
	gauge(s.lag, lag.Seconds())
	gauge(s.broken, broken)
}

// group identifies the members that are counted together.
type group struct {
	role  bourse.Role
	state string
}

// count counts members by role and state. Unknown roles, which later releases may introduce, are
// counted as the role "other".
func count(members []bourse.Member) map[group]int {
	out := map[group]int{}
	for _, role := range bourse.ServerRoles() {
		out[group{role, "ok"}] = 0 // count roles without members as 0, so that alerts notice the loss of the last member
	}
	for _, m := range members {
		in := group{m.Role, "ok"}
		if !slices.Contains(bourse.ServerRoles(), m.Role) {
			in.role = "other"
		}
		if m.Leaving {
			in.state = "leaving"
		}
		out[in]++
	}
	return out
}
