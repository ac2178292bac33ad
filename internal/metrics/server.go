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

// Server is a [prometheus.Collector] for the metrics that servers of all roles have.
type Server struct {
	source Source

	build, members, absent, expires                   *prometheus.Desc
	queue, queueBytes, dropped, quarantine, lag, size *prometheus.Desc
	broken                                            *prometheus.Desc
}

// New returns a server's metrics. A zero Source is sufficient if only Describe is called.
func New(source Source) *Server {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("bourse_"+name, help, labels, nil)
	}
	return &Server{
		source:     source,
		build:      desc("build_info", "Always 1; the labels say which release this is, and what the server does.", "version", "role", "region"),
		members:    desc("members", "Members that answer, this server included.", "role", "state"),
		absent:     desc("workers_absent", "Workers of the cluster that do not answer."),
		expires:    desc("certificate_expiry_timestamp_seconds", "Unix time at which the server's certificate ends; less time(), the seconds that are left."),
		queue:      desc("view_queue_transactions", "Transactions of others that wait to be applied to this server's view."),
		queueBytes: desc("view_queue_bytes", "Their bytes."),
		dropped:    desc("view_dropped_total", "Transactions that were dropped because too many waited; they are fetched again."),
		quarantine: desc("view_quarantined_rows", "Rows of others that were refused; bourse view health says why."),
		lag:        desc("view_lag_seconds", "How far this server's view is behind a member of which it lacks something, the worst of them; 0 when it lacks nothing."),
		size:       desc("view_file_bytes", "Size of the view's file."),
		broken:     desc("view_broken", "1 while the view's file cannot be written."),
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

// standing is a group of members that are counted together.
type standing struct {
	role  bourse.Role
	state string
}

// count counts members by role and state. Unknown roles, of later releases, are counted as one
// role.
func count(members []bourse.Member) map[standing]int {
	out := map[standing]int{}
	for _, role := range bourse.ServerRoles() {
		out[standing{role, "ok"}] = 0 // count roles without members as 0, so that alerts notice the loss of the last member
	}
	for _, m := range members {
		in := standing{m.Role, "ok"}
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
