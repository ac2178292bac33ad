package gateway_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/drivertest"
	"github.com/bourse-dev/bourse/driver/pull"
	"github.com/bourse-dev/bourse/gateway"
	"github.com/bourse-dev/bourse/worker"
)

// ticket is the ticket of all callers, unless a test sets another one.
const ticket = "0123456789abcdef0123456789abcdef"

// rig is a gateway on a real worker, in a bubble of virtual time.
type rig struct {
	t      *testing.T
	driver *pull.Driver
	worker *worker.Worker
	g      *gateway.Gateway
	h      http.Handler
}

// inBubble runs a test with a rig.
func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		d, err := pull.Open(pull.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		w, err := worker.Open(worker.Config{
			Dir: t.TempDir(), ID: "w1", Region: "gru", Driver: drivertest.NewMemory().Driver(), Log: slog.New(slog.DiscardHandler),
			Capacity: worker.Capacity{CPUs: 2, Memory: 1024, Disk: 1024}, Parts: worker.Parts{Pull: d},
		})
		if err != nil {
			t.Fatal(err)
		}
		g := gateway.New(gateway.Config{Region: "gru", Driver: d, Orders: w.Local(), Machines: w.Local()})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 3)
		go func() { ended <- w.Run(ctx) }()
		<-w.Recovered()
		go func() { ended <- d.Run(ctx) }()
		go func() { ended <- g.Run(ctx) }()
		test(t, &rig{t: t, driver: d, worker: w, g: g, h: g.Handler()})
		g.Leave()
		cancel()
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

// answer is the reply to a call.
type answer struct {
	status int
	text   string
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(a.text), &v); err != nil {
		t.Fatalf("%q is not a JSON object: %v", a.text, err)
	}
	return v
}

func (r *rig) call(method, path, body string, header ...string) answer {
	return r.callIn(r.t.Context(), method, path, body, header...)
}

func (r *rig) callIn(ctx context.Context, method, path, body string, header ...string) answer {
	req := httptest.NewRequestWithContext(ctx, method, "/sched/"+path, strings.NewReader(body))
	req.Header.Set("Bourse-Ticket", ticket)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	r.h.ServeHTTP(rec, req)
	return answer{rec.Code, rec.Body.String()}
}

// later makes a call in the background. It returns when the call is waiting.
func (r *rig) later(method, path, body string, header ...string) <-chan answer {
	out := make(chan answer, 1)
	go func() { out <- r.call(method, path, body, header...) }()
	synctest.Wait()
	return out
}

func (r *rig) want(what string, a answer, status int, texts ...string) {
	r.t.Helper()
	if a.status != status {
		r.t.Errorf("%s: status %d, want %d: %s", what, a.status, status, a.text)
	}
	for _, text := range texts {
		if !strings.Contains(a.text, text) {
			r.t.Errorf("%s: %s does not contain %q", what, a.text, text)
		}
	}
}

// run submits a job and lets a poller claim it.
func (r *rig) run(name string) {
	r.t.Helper()
	jobs := r.later("GET", "jobs", "")
	submitted := r.later("POST", "submit", `{"name": "`+name+`", "command": "true"}`)
	r.want("jobs", <-jobs, 200, `"name":"`+name+`"`)
	r.want("claim", r.call("POST", "claim/"+name+"?by=me", ""), 200)
	r.want("submit", <-submitted, 200, `"by":"me"`)
}

// settled waits until a job's end is recorded, and returns the job's status.
func (r *rig) settled(name string) map[string]any {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		a := r.call("GET", "status/"+name, "")
		r.want("status", a, 200)
		s := a.json(r.t)
		if s["state"] == string(bourse.StateStopped) || s["state"] == string(bourse.StateFailed) {
			return s
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s has not ended: %v", name, s)
		}
	}
}
