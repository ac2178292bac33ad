package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
)

func scrape(t *testing.T, s *Server) string {
	t.Helper()
	rec := httptest.NewRecorder()
	Handler(s).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if rec.Code != http.StatusOK || rec.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Fatalf("%d %v %s", rec.Code, rec.Header(), rec.Body)
	}
	return rec.Body.String()
}

func TestServer(t *testing.T) {
	var health view.Health
	source := Source{
		Self: bourse.Member{ID: "b1", Role: bourse.RoleBroker, Region: "gru"}, Version: "v1",
		Members: func() []bourse.Member {
			return []bourse.Member{
				{ID: "b1", Role: bourse.RoleBroker},
				{ID: "w1", Role: bourse.RoleWorker},
				{ID: "w2", Role: bourse.RoleWorker, Leaving: true},
				{ID: "x1", Role: "new-role"},
				{ID: "x2", Role: "other-new-role"},
			}
		},
		Absent:  func() int { return 3 },
		View:    func() view.Health { return health },
		Expires: func() time.Time { return time.Unix(1800000000, 0) },
	}
	health.Queue = view.QueueHealth{Length: 4, Bytes: 5, Dropped: 6}
	health.Quarantine.Count = 7
	health.Streams = []view.StreamHealth{{Lag: time.Hour}, {Lag: 3 * time.Second, Gaps: 2}, {Lag: time.Second, Gaps: 1}}
	text := scrape(t, New(source))
	for _, line := range []string{
		`bourse_build_info{region="gru",role="broker",version="v1"} 1`,
		`bourse_members{role="broker",state="ok"} 1`, `bourse_members{role="worker",state="ok"} 1`, `bourse_members{role="worker",state="leaving"} 1`,
		`bourse_members{role="other",state="ok"} 2`, `bourse_workers_absent 3`, `bourse_certificate_expiry_timestamp_seconds 1.8e+09`,
		`bourse_view_queue_transactions 4`, `bourse_view_queue_bytes 5`, `bourse_view_dropped_total 6`, `bourse_view_quarantined_rows 7`,
		`bourse_view_lag_seconds 3`, `bourse_view_broken 0`, // the stream with a lag of an hour has no gaps
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}

	health.Error, health.Streams = "disk full", nil
	source.Absent, source.Expires = nil, nil
	source.Members = func() []bourse.Member { return nil }
	text = scrape(t, New(source))
	for line, want := range map[string]bool{
		"bourse_view_broken 1": true, "bourse_view_lag_seconds 0": true, `bourse_members{role="worker",state="ok"} 0`: true,
		"bourse_workers_absent": false, "bourse_certificate_expiry": false,
	} {
		if strings.Contains(text, "\n"+line) != want {
			t.Errorf("the metrics contain %s: %v, want %v", line, !want, want)
		}
	}
	pedantic := prometheus.NewPedanticRegistry()
	pedantic.MustRegister(New(source))
	if _, err := pedantic.Gather(); err != nil {
		t.Error(err)
	}
}
