package machine

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestRunShowsThePull checks that "machine run" shows the image pull that the order waits
// for. Without a terminal, it prints a line at the start and at the end. It prints nothing
// if the token does not permit reading the progress.
func TestRunShowsThePull(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		asks   int64
		want   string
	}{
		"pulling":       {http.StatusOK, 2, "gru-1 is pulling nginx\ngru-1  pulled in 0 ms\n"},
		"not permitted": {http.StatusForbidden, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			seen, asked := make(chan struct{}), atomic.Int64{}
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/pull") {
					if n := asked.Add(1); n == c.asks { // the client sends this request after it has handled the previous reply
						close(seen)
					}
					w.WriteHeader(c.status)
					_ = json.NewEncoder(w).Encode(machinesapi.PullLine{Worker: "gru-1", Region: "gru", Image: &bourse.Image{
						Pull: &bourse.PullProgress{Status: "pulling", Bytes: 1, Total: 2},
					}})
					return
				}
				<-seen // the order is filled once the pull has been shown
				_ = json.NewEncoder(w).Encode(map[string]any{"id": "148e21ea1d5389", "state": "started"})
			})
			got := line.Against(t, h, "machine", "run", "nginx")
			if got.Code != 0 || got.Err != c.want {
				t.Errorf("exit status %d, stderr %q, want %q", got.Code, got.Err, c.want)
			}
		})
	}
}

// TestWaitForACrashLoop checks that waiting for a machine to start fails if its program
// crashes soon after the start, even if the machine has been restarted by then.
func TestWaitForACrashLoop(t *testing.T) {
	t.Parallel()
	exit := func(id bourse.EventID, restarting bool, n int) machinesapi.Event {
		return machinesapi.Event{ID: id, Type: bourse.EventExit, Request: &machinesapi.EventRequest{
			RestartCount: n, ExitEvent: &machinesapi.ExitEvent{ExitCode: 3, Restarting: restarting},
		}}
	}
	is := func(state bourse.State, events ...machinesapi.Event) (m machinesapi.Machine) {
		m.State, m.Events = state, events
		return m
	}
	const id = "148e21ea1d5389"
	for name, c := range map[string]struct {
		after machinesapi.Machine
		state string
		exit  int
		out   string
		err   string
	}{
		"stays": {is(bourse.StateStarted, exit("1", true, 1)), "settled", 0, id + "  started\n", ""},
		"crash loop": {is(bourse.StateStarted, exit("2", true, 2), exit("1", true, 1)), "started", 5, "", `error: machine 148e21ea1d5389 did not keep running: restarted 2 times, its program ended with exit code 3
  try: bourse machine logs -a shop 148e21ea1d5389
`},
		"ended": {is(bourse.StateStopped, exit("2", false, 0)), "started", 5, "", `error: machine 148e21ea1d5389 did not keep running: its program ended with exit code 3
  try: bourse machine logs -a shop 148e21ea1d5389
`},
		"ended, which counts as settled": {is(bourse.StateStopped, exit("2", false, 0)), "settled", 0, id + "  stopped\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waited := false
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				m := is(bourse.StateStarting, exit("1", true, 1))
				switch {
				case strings.HasSuffix(r.URL.Path, "/wait"):
					waited = true
					_ = json.NewEncoder(w).Encode(machinesapi.WaitReply{OK: true, State: bourse.StateStarted})
					return
				case waited:
					m = c.after
				}
				m.ID, m.App = id, "shop"
				_ = json.NewEncoder(w).Encode(m)
			})
			got := line.Against(t, h, "machine", "wait", id, "-a", "shop", "--state", c.state)
			if got.Code != c.exit || got.Out != c.out || got.Err != c.err {
				t.Errorf("exit status %d, %q, %q; want %d, %q, %q", got.Code, got.Out, got.Err, c.exit, c.out, c.err)
			}
		})
	}
}
