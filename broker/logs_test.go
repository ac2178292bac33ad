package broker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

var logTime = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

func withLogs(t *testing.T) (*setup, bourse.MachineID) {
	t.Helper()
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStarted)
	s.workers["w1"].logs = []fabric.LogLine{
		{At: logTime, Stream: "stdout", Text: "one"},
		{At: logTime.Add(time.Second), Stream: "stderr", Text: "two \x00 \" </script>"},
		{At: logTime.Add(2 * time.Second), Stream: "stdout", Text: "three"},
	}
	return s, m.ID
}

func TestLogs(t *testing.T) {
	s, id := withLogs(t)
	client := s.client(t)
	for name, c := range map[string]struct {
		query machinesapi.LogQuery
		want  []string
	}{
		"all":   {machinesapi.LogQuery{}, []string{"one", "two \x00 \" </script>", "three"}},
		"tail":  {machinesapi.LogQuery{Tail: 1}, []string{"three"}},
		"since": {machinesapi.LogQuery{Since: logTime.Add(time.Nanosecond)}, []string{"two \x00 \" </script>", "three"}},
	} {
		var got []string
		err := client.Logs(t.Context(), "shop", id, c.query, func(l machinesapi.LogLine) error {
			got = append(got, l.Text)
			return nil
		})
		if err != nil || !cmp.Equal(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
	stop := errors.New("enough")
	if err := client.Logs(t.Context(), "shop", id, machinesapi.LogQuery{}, func(machinesapi.LogLine) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error returned by the reader: %v", err)
	}
	if err := client.Logs(t.Context(), "shop", "aaaaaa00000000", machinesapi.LogQuery{}, nil); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("missing machine: %v", err)
	}
}

// TestFollowedLogsStream checks that lines arrive as they are written, and that the stream ends
// when the caller disconnects.
func TestFollowedLogsStream(t *testing.T) {
	s, id := withLogs(t)
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := s.client(t).Logs(ctx, "shop", id, machinesapi.LogQuery{Follow: true}, func(machinesapi.LogLine) error {
		if n++; n == 3 {
			cancel()
		}
		return nil
	})
	if n != 3 || bourse.CodeOf(err) != bourse.CodeCanceled {
		t.Errorf("%d lines, then %v", n, err)
	}
}

// TestABrokenLogStreamIsAnError checks that a broken stream ends with an error, so that it cannot be mistaken for the
// end of the log.
func TestABrokenLogStreamIsAnError(t *testing.T) {
	s, id := withLogs(t)
	s.workers["w1"].logs[2].Stream = "broken"
	n := 0
	err := s.client(t).Logs(t.Context(), "shop", id, machinesapi.LogQuery{}, func(machinesapi.LogLine) error { n++; return nil })
	if n != 2 || bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("%d lines, then %v", n, err)
	}
}
