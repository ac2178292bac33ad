package broker_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// fuzzBody sends arbitrary bodies to an endpoint of an existing machine. The reply must be JSON, no request may cause
// an internal error, and workers must receive only valid data.
func fuzzBody(f *testing.F, method, path string, sound func(*testing.T, *setup), seeds ...string) {
	for _, seed := range append(seeds, ``, `{}`, `null`, `[]`, `{"a":`, `{"timeout":1e999}`, "{\"\xff\":\"\x00\"}") {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := start(t)
		target := path
		if !strings.HasPrefix(path, "/v") {
			target = "/v1/apps/shop/machines/" + string(s.machine(t, "w1", "web", bourse.StateStarted).ID) + path
		}
		rec := s.call(t, method, target, string(body))
		if rec.Code >= 500 {
			t.Fatalf("status %d: %s\n%s", rec.Code, rec.Body, s.log)
		}
		if rec.Code != http.StatusNoContent && !json.Valid(rec.Body.Bytes()) {
			t.Fatalf("the reply is not JSON: %q", rec.Body)
		}
		if rec.Code > 299 {
			if e := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); e.Code == "" || e.Error == "" {
				t.Fatalf("status %d without a reason: %s", rec.Code, rec.Body)
			}
			return
		}
		sound(t, s)
	})
}

func FuzzCreate(f *testing.F) {
	fuzzBody(f, "POST", createPath, func(t *testing.T, s *setup) {
		order := s.lastOrder(t)
		if err := order.Validate(); err != nil {
			t.Fatalf("an invalid order was placed: %v", err)
		}
		if err := order.Config.Guest.Takes(1).Validate(); err != nil {
			t.Fatalf("the order needs more than a ledger can represent: %v", err)
		}
	}, `{"config":`+hostConfig+`}`, `{"config":{"image":"nginx","size":"performance-2x"},"region":"mad,eu","lease_ttl":5,"race":2,"deadline":"1s"}`,
		`{"config":{"image":"host","init":{"cmd":["a"]},"guest":{"cpus":-1},"requirements":{"slots":1,"arch":"arm64"}},"name":"x"}`)
}

func FuzzExec(f *testing.F) {
	fuzzBody(f, "POST", "/exec", func(t *testing.T, s *setup) {
		if e := s.workers["w1"].execs[0]; len(e.Command) == 0 || e.Command[0] == "" || e.Timeout <= 0 {
			t.Fatalf("the worker received %+v", e)
		}
	}, `{"command":["ls","-l"],"timeout":5,"stdin":"x"}`, `{"cmd":"sh -c 'a \"b\" \\' c"}`, `{"cmd":"\\"}`)
}

func FuzzStop(f *testing.F) {
	fuzzBody(f, "POST", "/stop", func(t *testing.T, s *setup) {
		a := s.workers["w1"].acts[0]
		if (a.Signal != "" && a.Signal.Validate() != nil) || a.Timeout < 0 || a.Timeout > bourse.Duration(bourse.MaxStopTimeout) {
			t.Fatalf("the worker received %+v", a)
		}
	}, `{"id":"x","signal":"SIGTERM","timeout":"0s"}`, `{"signal":9,"timeout":1000000000}`)
}

func FuzzSignal(f *testing.F) {
	fuzzBody(f, "POST", "/signal", func(t *testing.T, s *setup) {
		if a := s.workers["w1"].acts[0]; a.Signal.Validate() != nil {
			t.Fatalf("the worker received %+v", a)
		}
	}, `{"signal":9}`, `{"signal":"term"}`)
}

func FuzzLease(f *testing.F) {
	fuzzBody(f, "POST", "/lease", func(t *testing.T, s *setup) {
		for _, m := range s.workers["w1"].machines {
			if m.Lease == nil || m.Lease.ExpiresAt.IsZero() {
				t.Fatalf("the lease is %+v", m.Lease)
			}
		}
	}, `{"ttl":30,"description":"x"}`, `{"ttl":-1}`, `{"ttl":9223372036854775807}`)
}

func FuzzMetadata(f *testing.F) {
	fuzzBody(f, "PATCH", "/metadata", func(t *testing.T, s *setup) {
		for _, m := range s.workers["w1"].machines {
			for k, v := range m.Config.Metadata {
				if k == "" || v == "" {
					t.Fatalf("metadata is %q", m.Config.Metadata)
				}
			}
		}
	}, `{"metadata":{"a":"b","c":null,"d":""},"machine_version":"x"}`)
}

func FuzzCreateApp(f *testing.F) {
	fuzzBody(f, "POST", "/v1/apps", func(t *testing.T, s *setup) {
		for name := range s.workers["w1"].apps {
			if err := name.Validate(); err != nil {
				t.Fatalf("an invalid app was created: %v", err)
			}
		}
	}, `{"name":"shop","org_slug":"personal"}`, `{"app_name":"shop","idempotency_key":"k"}`)
}

func FuzzWaitQuery(f *testing.F) {
	for _, seed := range []string{"state=started", "state=settled,failed&timeout=1", "timeout=-1s", "%zz", "version=x&from_event_id=y&timeout=1ns"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		s := start(t)
		m := s.machine(t, "w1", "web", bourse.StateDestroyed) // a destroyed machine makes every wait end immediately
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/apps/shop/machines/"+string(m.ID)+"/wait", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.RawQuery = query
		if req.URL.Query().Get("from_event_id") != "" {
			t.Skip("this input waits for a future event")
		}
		rec := &statusWriter{header: http.Header{}}
		s.handler.ServeHTTP(rec, req)
		if rec.status >= 500 || rec.status == 0 {
			t.Fatalf("?%s: status %d", query, rec.status)
		}
	})
}

type statusWriter struct {
	header http.Header
	status int
}

func (w *statusWriter) Header() http.Header         { return w.header }
func (w *statusWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *statusWriter) WriteHeader(status int)      { w.status = status }
