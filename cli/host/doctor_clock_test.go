package host

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
)

// A wrong clock is found even if certificates are invalid, because the clock may be the reason.
func TestClockWithoutCertificates(t *testing.T) {
	ca := newCA(t, 365*day)
	broker := listening(t, ca, "h2-broker", bourse.RoleBroker)
	broker.ahead = -day
	broker.serve(t)
	s, _ := workerIn(t, ca, renewed(t, ca, 30*day))
	c := newCluster([]serve.Server{s}, "v1", time.Now)
	if c.creds != nil {
		t.Fatal("the expired certificate was accepted")
	}
	if got := c.checkClock(t.Context(), []string{broker.Address}); !slices.Equal(statuses(got), []status{statusProblem}) || !strings.Contains(got[0].Finding, "ahead of") {
		t.Errorf("got %+v, want a finding that this host is a day ahead", got)
	}
	if got := results(c.check(t.Context())); !slices.Contains(got, "worker h1: warning") {
		t.Errorf("got %q, want no request to this host's server", got)
	}
}

func TestClockOfSilentServers(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	c := thisHost(t, newCA(t, 0), "127.0.0.1:1")
	got := c.checkClock(t.Context(), []string{refusing(t), plain.Listener.Addr().String()})
	if !slices.Equal(statuses(got), []status{statusWarning}) || got[0].Try == "" {
		t.Errorf("got %+v, want a warning", got)
	}
	if got := c.checkClock(t.Context(), nil); got != nil {
		t.Errorf("without other servers: %+v", got)
	}
}

func TestAheadOf(t *testing.T) {
	date := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		sent, received, want time.Duration
	}{
		"at once":                       {0, 0, 0},
		"within the second":             {900 * time.Millisecond, 990 * time.Millisecond, 0},
		"slow answer":                   {-5 * time.Second, 5 * time.Second, 0},
		"behind":                        {-3 * time.Second, -2 * time.Second, -2 * time.Second},
		"ahead":                         {3 * time.Second, 4 * time.Second, 2 * time.Second},
		"a day behind":                  {-day, -day + time.Second, -day + time.Second},
		"just after the server replied": {-time.Millisecond, time.Millisecond, 0},
	} {
		if got := aheadOf(date, date.Add(c.sent), date.Add(c.received)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestCompareClocks(t *testing.T) {
	const this, that = "clock of this host", "clock of that host"
	for name, c := range map[string]struct {
		ahead map[string]time.Duration
		want  status
		try   string
	}{
		"none answered":          {nil, statusWarning, ""},
		"agree":                  {map[string]time.Duration{"a": 0, "b": -time.Second}, statusOK, ""},
		"a bit off":              {map[string]time.Duration{"a": 2 * time.Second, "b": 3 * time.Second}, statusWarning, this},
		"off":                    {map[string]time.Duration{"a": time.Minute, "b": time.Minute}, statusProblem, this},
		"behind":                 {map[string]time.Duration{"a": -time.Minute}, statusProblem, this},
		"another clock is wrong": {map[string]time.Duration{"a": 0, "b": 0, "c": time.Minute}, statusProblem, that},
	} {
		if got := compareClocks(c.ahead); got.Status != c.want || !strings.Contains(got.Try, c.try) {
			t.Errorf("%s: %+v, want %s and %q", name, got, c.want, c.try)
		}
	}
}
