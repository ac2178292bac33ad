package tasks

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/tasks/taskstest"
	"github.com/bourse-dev/bourse/worker/warm"
)

// If a program begins to listen shortly after its start, its task waits for it. If a program never listens, the order
// is refused and nothing is left behind.
func TestAProgramThatIsLate(t *testing.T) {
	for _, protocol := range taskProtocols {
		t.Run(string(protocol), func(t *testing.T) { programThatIsLate(t, protocol) })
	}
}

func programThatIsLate(t *testing.T, protocol bourse.TaskProtocol) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	_ = ln.Close()
	h := newHost(t)
	h.place(func(o *bourse.Order) {
		o.Config.Task = &bourse.TaskConfig{Name: "late", Port: port, Protocol: protocol}
	})
	order := taskstest.Call(t, "late", 1)
	go func() {
		for h.slots() == 0 { // wait until the call is in progress
			time.Sleep(time.Millisecond)
		}
		ln, err := net.Listen("tcp", ln.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		if protocol == bourse.TaskFrames {
			_ = warm.Serve(t.Context(), ln, 0, func(context.Context, *warm.Call) warm.Answer { return warm.Answer{Body: []byte("here")} })
			return
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("here")) })}
		t.Cleanup(func() { _ = server.Close() })
		_ = server.Serve(ln)
	}()
	if got := h.result(t.Context(), order); ended(got) != "answered 0 here" {
		t.Errorf("got %s: %s", ended(got), got.Error)
	}

	never := h.place(func(o *bourse.Order) { o.Config.Task = &bourse.TaskConfig{Name: "never", Port: 1, Protocol: protocol} })
	h.warm.timeout = 0 // the program's time to begin listening is over
	order = taskstest.Call(t, "never", 4)
	_, refusal, err := h.Claim(t.Context(), &bourse.Claim{Order: *order})
	if err != nil || refusal == nil || refusal.Reason != bourse.RefusedUnavailable || !strings.Contains(refusal.Detail, string(never.ID)) {
		t.Errorf("refusal %+v, %v", refusal, err)
	}
	if n, open := h.slots(), h.openTasks(); n != 0 || len(open) != 0 {
		t.Errorf("left behind: %d slots, tasks %v", n, open)
	}
	if rec, err := h.orderRecord(t.Context(), order.ID); err != nil || rec.ID != "" {
		t.Errorf("the order still has a record: %+v, %v", rec, err)
	}
	h.verify()
}
