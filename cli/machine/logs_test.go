package machine

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// replyLines replies with the log lines after a position. Each line begins with its
// time in seconds after noon.
func replyLines(w http.ResponseWriter, after string, lines ...string) {
	e := json.NewEncoder(w)
	for i, text := range lines {
		position := fmt.Sprintf("1.%d", i+1)
		if position <= after {
			continue
		}
		var second int
		_, _ = fmt.Sscanf(text, "%d", &second)
		_ = e.Encode(machinesapi.LogLine{At: clitest.Now.Add(time.Duration(second) * time.Second), Stream: "stdout", Text: text, Position: position})
	}
}

// TestLogsFollowARestart checks that following a log continues after the last line once a worker or broker has
// restarted. The end of a stream must not be mistaken for the end of the machine.
func TestLogsFollowARestart(t *testing.T) {
	m := machineFixture()
	var calls atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/apps/default/machines/{id}", func(w http.ResponseWriter, _ *http.Request) {
		shown := m
		if calls.Load() == 5 {
			shown.State = bourse.StateDestroyed
		}
		clitest.Replies(http.StatusOK, shown).ServeHTTP(w, nil)
	})
	mux.HandleFunc("GET /v1/apps/default/machines/{id}/logs", func(w http.ResponseWriter, r *http.Request) {
		after := r.URL.Query().Get("after")
		switch calls.Add(1) {
		case 1:
			replyLines(w, after, "1 a", "2 b")
			_ = json.NewEncoder(w).Encode(machinesapi.LogLine{Error: &machinesapi.ErrorBody{Error: "no answer from worker gru-1", Code: bourse.CodeUnavailable}})
		case 2:
			clitest.Failure(bourse.CodeUnavailable, "no answer from worker gru-1").ServeHTTP(w, r)
		case 3: // the stream ends, as when a broker stops
			replyLines(w, after, "1 a", "2 b", "3 c")
		case 4: // the stream breaks in the middle of a line
			replyLines(w, after, "1 a", "2 b", "3 c", "4 d")
			_, _ = w.Write([]byte("{\"text\": \"to"))
		default:
			replyLines(w, after, "1 a", "2 b", "3 c", "4 d", "5 e")
		}
	})
	got := line.Against(t, mux, "machine", "logs", "-f", "148e21ea1d5389")
	if want := "1 a\n2 b\n3 c\n4 d\n5 e\n"; got.Code != 0 || got.Out != want {
		t.Errorf("exit status %d, %q, want %q; %s", got.Code, got.Out, want, got.Err)
	}
	if want := "connection lost (no answer from worker gru-1); reconnecting\n"; !strings.HasPrefix(got.Err, want) || strings.Count(got.Err, "gru-1") != 1 {
		t.Errorf("stderr %q, want %q exactly once", got.Err, want)
	}
}

// TestLogsDoNotRetryTheFirstRequest checks that following a log fails immediately if the first request fails.
func TestLogsDoNotRetryTheFirstRequest(t *testing.T) {
	for code, want := range map[bourse.Code]int{bourse.CodeNotFound: 3, bourse.CodeUnavailable: 7, bourse.CodeForbidden: 4} {
		if got := line.Against(t, clitest.Failure(code, "no"), "machine", "logs", "-f", "148e21ea1d5389"); got.Code != want {
			t.Errorf("%s: exit status %d, want %d: %s", code, got.Code, want, got.Err)
		}
	}
}

// severalLogs serves an app with two machines.
func severalLogs(followed *atomic.Int32) http.Handler {
	a, b := machineFixture(), machineFixture()
	b.ID, b.Name = "148e21aabbccdd", "db"
	mux := http.NewServeMux()
	mux.Handle("GET /v1/apps/default/machines", clitest.Replies(http.StatusOK, []machinesapi.Machine{a, b}))
	mux.HandleFunc("GET /v1/apps/default/machines/{id}", func(w http.ResponseWriter, _ *http.Request) {
		shown := a
		shown.State = bourse.StateDestroyed
		clitest.Replies(http.StatusOK, shown).ServeHTTP(w, nil)
	})
	mux.HandleFunc("GET /v1/apps/default/machines/{id}/logs", func(w http.ResponseWriter, r *http.Request) {
		more := []string{}
		if r.URL.Query().Get("follow") != "" {
			followed.Add(1)
			more = []string{"9 later"}
		}
		if bourse.MachineID(r.PathValue("id")) == b.ID {
			replyLines(w, r.URL.Query().Get("after"), append([]string{"2 two", "3 three"}, more...)...)
			return
		}
		replyLines(w, r.URL.Query().Get("after"), append([]string{"1 one", "4 four"}, more...)...)
	})
	return mux
}

// TestLogsOfSeveralMachines checks that the lines of several machines are sorted by time
// and labeled with the machine's name. Each new line must be printed once.
func TestLogsOfSeveralMachines(t *testing.T) {
	t.Setenv("TZ", "UTC")
	var followed atomic.Int32
	h := severalLogs(&followed)
	past := "quiet-river-1234  1 one\ndb                2 two\ndb                3 three\nquiet-river-1234  4 four\n"
	if got := line.Against(t, h, "machine", "logs"); got.Code != 0 || got.Out != past || got.Err != "" {
		t.Errorf("%+v, want\n%s", got, past)
	}
	if got, want := line.Against(t, h, "machine", "logs", "-n", "2", "-T"), "db                2026-11-21T12:00:03.000Z  3 three\nquiet-river-1234  2026-11-21T12:00:04.000Z  4 four\n"; got.Out != want {
		t.Errorf("the last two: %q, want %q", got.Out, want)
	}
	got := line.Against(t, h, "machine", "logs", "-f", "db", "quiet-river-1234")
	if strings.Count(got.Out, "9 later") != 2 || !strings.HasPrefix(got.Out, past) || strings.Count(got.Out, "\n") != 6 || followed.Load() != 2 {
		t.Errorf("followed %d: %+v", followed.Load(), got)
	}
	if got := line.Against(t, h, "machine", "logs", "--json"); !strings.HasPrefix(got.Out, `{"machine":"148e21ea1d5389","name":"quiet-river-1234","at":"2026-11-21T12:00:01Z","stream":"stdout","text":"1 one","position":"1.1"}`) {
		t.Errorf("--json: %s", got.Out)
	}
}

// TestLogColors checks that each machine's name has its own color and that colors in a
// program's output are preserved.
func TestLogColors(t *testing.T) {
	var followed atomic.Int32
	line.Painted(t, "logs_painted", severalLogs(&followed), "machine", "logs", "-T")
}

// TestEventsOfAllMachines checks the list of the events of all machines of an app.
func TestEventsOfAllMachines(t *testing.T) {
	a, b := machineFixture(), machineFixture()
	b.ID, b.Name = "148e21aabbccdd", "a-name-of-thirty-characters-12"
	a.Events = nil
	exit := func(at int, code int, oom bool) machinesapi.Event {
		e := machinesapi.Event{ID: bourse.EventID(fmt.Sprintf("01JD3V7K7Y5C5ZQ7W1R2M3N4P%d", at)), Type: bourse.EventExit, Status: bourse.StateStopped, Source: "worker", Timestamp: clitest.Now.Add(time.Duration(at) * time.Second).UnixMilli()}
		e.Request = &machinesapi.EventRequest{ExitEvent: &machinesapi.ExitEvent{ExitCode: code, OOMKilled: oom}}
		return e
	}
	h := clitest.Paths(map[string]any{
		"/v1/apps/default/machines":                             []machinesapi.Machine{a, b},
		"/v1/apps/default/machines/" + string(a.ID) + "/events": []machinesapi.Event{exit(3, 137, true), exit(1, 1, false)},
		"/v1/apps/default/machines/" + string(b.ID) + "/events": []machinesapi.Event{exit(2, 0, false)},
	})
	line.Screens(t, "events_of_all", h, "machine", "events")
}
