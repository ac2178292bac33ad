package trace_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/internal/trace"
	"github.com/bourse-dev/bourse/internal/trace/tracetest"
)

const (
	id     = "0af7651916cd43dd8448eb211c80319c"
	parent = "00-" + id + "-b7ad6b7169203331-01"
)

func open(t *testing.T, env map[string]string) *trace.Tracer {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	tr, err := trace.Open(t.Context(), trace.Config{
		Service: "bourse-test", ID: "t1", Region: "gru", Log: slog.New(slog.DiscardHandler), Getenv: func(name string) string { return env[name] },
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// A client's trace continues through two servers, in the headers and in the query of a
// request, and its spans arrive at the collector.
func TestTrace(t *testing.T) {
	c := tracetest.New(t)
	tr := open(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL})
	ctx, first := tr.Request(t.Context(), http.Header{"Traceparent": {parent}}, "request")
	inner, second := trace.Start(ctx, "ready")
	seen := ""
	worker := tr.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		h := http.Header{}
		trace.Into(r.Context(), h)
		seen += h.Get("Traceparent")
		_, s := trace.Start(r.Context(), "start")
		s.Set("bourse.machine", "m1")
		s.End(errors.New("full"))
	}))
	worker.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/worker/machine/use"+trace.Query(inner), nil))
	worker.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/worker/machine/use?bm8tdHJhY2U", nil)) // a request without a trace
	second.End(nil)
	first.SetInt("http.response.status_code", 503)
	first.End(nil)
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	spans := c.Await(t, id, "request", "request > ready", "request > ready > worker/machine/use", "request > ready > worker/machine/use > start")
	if len(spans) != 4 || !strings.HasPrefix(seen, "00-"+id) {
		t.Errorf("got %d spans, want 4; the trace contains %q", len(spans), seen)
	}
	for _, s := range spans {
		if s.Service != "bourse-test" || s.Failed != (s.Name == "start") || s.Name == "request" && (s.Parent != "b7ad6b7169203331" || s.Attributes["http.response.status_code"] != "503") {
			t.Errorf("got an unexpected span %+v", s)
		}
	}
}

// Without a collector there are no spans, and a client's trace is ignored.
func TestUntraced(t *testing.T) {
	tr := open(t, nil)
	ctx, s := tr.Request(t.Context(), http.Header{"Traceparent": {parent}}, "request")
	inner, within := trace.Start(ctx, "choose")
	within.Set("a", "b")
	within.End(nil)
	s.End(errors.New("x"))
	if tr != nil || s.On() || within.On() || inner != t.Context() || trace.Query(inner) != "" || tr.Close() != nil {
		t.Error("a span was recorded without a collector")
	}
	h := http.NewServeMux()
	if tr.Handler(h) != http.Handler(h) {
		t.Error("a handler was wrapped although nothing is traced")
	}
	if n := testing.AllocsPerRun(100, func() {
		_, s := trace.Start(ctx, "choose")
		s.End(nil)
	}); n > 0 {
		t.Errorf("got %v allocations for a request that is not traced, want none", n)
	}
}

// Whatever trace a request contains, it is served exactly once.
func FuzzHandler(f *testing.F) {
	f.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	f.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
	f.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	tr, err := trace.Open(f.Context(), trace.Config{Log: slog.New(slog.DiscardHandler), Getenv: func(string) string { return "http://127.0.0.1:1" }})
	if err != nil {
		f.Fatal(err)
	}
	defer tr.Close()
	f.Add("traceparent="+parent, "a=b")
	f.Add("traceparent=00-0-0-0&machine=m", ",=,")
	f.Add("%zz&traceparent=%", strings.Repeat("a=b,", 40))
	f.Fuzz(func(t *testing.T, query, state string) {
		r := httptest.NewRequest(http.MethodPost, "/worker/machine/use", nil)
		r.URL.RawQuery = query
		r.Header["Tracestate"] = []string{state}
		served := 0
		tr.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if served++; r.URL.RawQuery != query {
				t.Errorf("the query is %q, want %q", r.URL.RawQuery, query)
			}
		})).ServeHTTP(httptest.NewRecorder(), r)
		if served != 1 {
			t.Errorf("served %d times", served)
		}
	})
}
